"""Databases that were made by earlier states of the migrations before become like those that are made today.

Some of them were edited after they had landed: `message_external_id_unique` was an index, `search_version` was bound to
be positive, searches by words were ranked by parallel workers. Where nothing differs, a function is written as it is
and that's all.
"""

from django.db import migrations

from sessions_app.word_search import recall_anew

FOUND = "kind <> 'partition' AND role <> 'system' AND retracted_at IS NULL"

UNIQUE_SQL = """
DO $$ BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_constraint
        WHERE conname = 'message_external_id_unique' AND conrelid = 'sessions_app_message'::regclass
    ) THEN
        DROP INDEX message_external_id_unique;
        ALTER TABLE sessions_app_message ADD CONSTRAINT message_external_id_unique UNIQUE (session_id, external_id);
    END IF;
END $$
"""

UNBOUND_SQL = "ALTER TABLE sessions_app_message DROP CONSTRAINT IF EXISTS sessions_app_message_search_version_check"


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0014_archived_turns")]

    operations = [
        migrations.RunSQL(UNIQUE_SQL, migrations.RunSQL.noop),
        migrations.RunSQL(UNBOUND_SQL, migrations.RunSQL.noop),
        recall_anew("sessions_app_message", scope="'u' || user_id", time="created_at", condition=FOUND, before=FOUND),
    ]
