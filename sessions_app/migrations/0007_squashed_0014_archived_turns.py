"""Digests, retraction, words in their language, when messages came in, and archived turns that are found."""

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.functions.datetime
import django.utils.timezone
from django.db import migrations, models

import sessions_app.models.searched
from sessions_app.migrations._word_search import (
    CREATE_TRIGGER_FUNCTION,
    PRICE_FUNCTION,
    recall_anew,
    words_index,
    write_search_vector,
)

SCOPE = "'u' || user_id"
FOUND = "kind <> 'partition' AND role <> 'system'"
TURNS = "kind = 'turn' AND role <> 'system'"
WORDS = {"scope": SCOPE, "condition": TURNS}


class Migration(migrations.Migration):
    replaces = [
        ("sessions_app", "0007_digests"),
        ("sessions_app", "0008_retraction"),
        ("sessions_app", "0009_recall_plan"),
        ("sessions_app", "0010_created_and_event_type"),
        ("sessions_app", "0011_words_of_the_application"),
        ("sessions_app", "0012_unindexed_messages"),
        ("sessions_app", "0013_arrival"),
        ("sessions_app", "0014_archived_turns"),
    ]

    dependencies = [
        ("moments_app", "0002_squashed_0014_source_user"),
        ("sessions_app", "0001_squashed_0006_lifecycle"),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name="message",
            name="message_partition_is_tool",
        ),
        migrations.AddIndex(
            model_name="message",
            index=django.contrib.postgres.indexes.BrinIndex(
                autosummarize=True, fields=["created_at"], name="message_created"
            ),
        ),
        migrations.AddField(
            model_name="message",
            name="arrived_at",
            field=models.DateTimeField(
                db_default=django.db.models.functions.datetime.Now(),
                default=django.utils.timezone.now,
                help_text="When the platform got it: the keep-by date counts from here.",
            ),
        ),
        migrations.AlterField(
            model_name="message",
            name="kind",
            field=models.CharField(
                choices=[("turn", "Turn"), ("partition", "Partition"), ("archived", "Archived")],
                default="turn",
                max_length=16,
            ),
        ),
        migrations.AlterField(
            model_name="message",
            name="created_at",
            field=models.DateTimeField(
                default=django.utils.timezone.now, help_text="When it was said, as the client tells."
            ),
        ),
        migrations.AddConstraint(
            model_name="message",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("kind", "partition"), _negated=True), ("role__in", ["tool", "system"]), _connector="OR"
                ),
                name="message_boundary_is_no_speech",
            ),
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                condition=models.Q(("kind", "archived")),
                fields=["session", "user", "sequence"],
                name="message_archived",
            ),
        ),
        migrations.RemoveIndex(
            model_name="session",
            name="session_live",
        ),
        migrations.AddField(
            model_name="session",
            name="retraction_count",
            field=models.PositiveIntegerField(
                default=0,
                help_text="Retractions, and undone ones, so far: work that was begun before the last is done again.",
            ),
        ),
        migrations.AddIndex(
            model_name="session",
            index=django.contrib.postgres.indexes.BrinIndex(
                autosummarize=True, fields=["created_at"], name="session_created"
            ),
        ),
        migrations.AddField(
            model_name="session",
            name="last_arrived_at",
            field=models.DateTimeField(
                db_default=django.db.models.functions.datetime.Now(),
                default=django.utils.timezone.now,
                help_text="When the platform last got a message, whenever that was said: it is quiet from here on.",
            ),
        ),
        migrations.AlterField(
            model_name="session",
            name="last_activity_at",
            field=models.DateTimeField(
                default=django.utils.timezone.now, help_text="When something was last said in it."
            ),
        ),
        migrations.AlterField(
            model_name="session",
            name="kept_from_sequence",
            field=models.BigIntegerField(
                default=0, help_text="First turn that is still in the transcript, neither archived nor deleted."
            ),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("message_count__gt", models.F("formed_message_count"))),
                fields=["last_arrived_at"],
                name="session_to_form",
            ),
        ),
        migrations.AddIndex(
            model_name="session",
            index=models.Index(
                condition=models.Q(("status", "active")), fields=["last_arrived_at", "id"], name="session_not_cleared"
            ),
        ),
        migrations.RemoveIndex(
            model_name="session",
            name="session_unformed",
        ),
        migrations.AddIndex(
            model_name="event",
            index=models.Index(fields=["type", "-created_at", "-id"], name="event_type_newest"),
        ),
        migrations.AddField(
            model_name="archive",
            name="block_sequences",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.BigIntegerField(),
                default=list,
                help_text="First turn of each part of the file that is read by itself.",
                size=None,
            ),
        ),
        migrations.AddField(
            model_name="archive",
            name="block_offsets",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.BigIntegerField(), default=list, help_text="Where in the file each begins.", size=None
            ),
        ),
        PRICE_FUNCTION,
        CREATE_TRIGGER_FUNCTION,
        migrations.SeparateDatabaseAndState(
            [write_search_vector("sessions_app_message", ["content"], words_index("sessions_app_message", **WORDS))],
            [
                migrations.AddField(
                    model_name="message",
                    name="search_vector",
                    field=sessions_app.models.searched.WordsField(editable=False, null=True),
                ),
                migrations.AddField(
                    model_name="message",
                    name="search_version",
                    field=models.SmallIntegerField(db_default=0, default=1, editable=False),
                ),
            ],
        ),
        migrations.AddIndex(
            model_name="message",
            index=models.Index(
                condition=models.Q(("search_version__lt", 1)), fields=["user", "id"], name="message_unindexed"
            ),
        ),
        migrations.RunSQL("DROP INDEX sessions_app_message_words", words_index("sessions_app_message", **WORDS)),
        migrations.RunSQL(
            words_index("sessions_app_message", scope=SCOPE, condition=FOUND), "DROP INDEX sessions_app_message_words"
        ),
        recall_anew(
            "sessions_app_message",
            scope=SCOPE,
            time="created_at",
            condition=f"{FOUND} AND retracted_at IS NULL",
            before=TURNS,
        ),
    ]
