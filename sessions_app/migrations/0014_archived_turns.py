"""Archived turns are found by their words like others, and quiet sessions by when their last message came in."""

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently, ValidateConstraint
from django.db import migrations, models
from django.db.models import F, Q

from sessions_app.word_search import recall_anew, swap_index

FOUND = "kind <> 'partition' AND role <> 'system'"
TURNS = "kind = 'turn' AND role <> 'system'"

# Older code knows no turn without its text; their archives bring them back.
LET_GO = """
DO $$ BEGIN
    IF to_regclass('moments_app_turnembedding') IS NOT NULL THEN
        DELETE FROM moments_app_turnembedding USING sessions_app_message message
        WHERE source_id = message.id AND message.kind = 'archived';
    END IF;
    DELETE FROM sessions_app_message WHERE kind = 'archived';
END $$
"""


class Migration(migrations.Migration):
    atomic = False  # the indexes are built while the tables are written to

    dependencies = [("sessions_app", "0013_arrival")]

    operations = [
        migrations.RunSQL(sql=migrations.RunSQL.noop, reverse_sql=LET_GO),
        ValidateConstraint(model_name="message", name="message_boundary_is_no_speech"),
        AddIndexConcurrently(
            "message",
            models.Index(fields=["session", "user", "sequence"], condition=Q(kind="archived"), name="message_archived"),
        ),
        AddIndexConcurrently(
            "session",
            models.Index(
                fields=["last_arrived_at"],
                condition=Q(message_count__gt=F("formed_message_count")),
                name="session_to_form",
            ),
        ),
        AddIndexConcurrently(
            "session",
            models.Index(fields=["last_arrived_at", "id"], condition=Q(status="active"), name="session_not_cleared"),
        ),
        RemoveIndexConcurrently("session", "session_unformed"),
        RemoveIndexConcurrently("session", "session_active"),
        swap_index("sessions_app_message", scope="'u' || user_id", condition=FOUND, before=TURNS),
        recall_anew(
            "sessions_app_message",
            scope="'u' || user_id",
            time="created_at",
            condition=f"{FOUND} AND retracted_at IS NULL",
            before=f"{TURNS} AND retracted_at IS NULL",
        ),
    ]
