"""Databases that were made by earlier states of the migrations before become like those that are made today.

Some of them were edited after they had landed: vectors had no time of their own, without which no search by meaning
ran and no text was embedded; a person's jobs were in another order; new words of moments waited in a longer list to be
sorted in; `search_version` was bound to be positive; searches by words were ranked by parallel workers. Where nothing
differs, functions are written as they are and that's all.
"""

from django.db import migrations

from sessions_app.word_search import recall_anew

ATOMS = {"scope": "COALESCE('u' || user_id, 's' || stream_id)", "time": "formed_at"}
FOUND = "state <> 'evicted'"

JOBS_SQL = """
DO $$ BEGIN
    IF pg_get_indexdef('job_user_newest'::regclass) NOT LIKE '%queued_at%' THEN
        DROP INDEX job_user_newest;
        CREATE INDEX job_user_newest ON moments_app_job (user_id, queued_at DESC, id DESC);
    END IF;
END $$
"""


PENDING_SQL = "ALTER INDEX moments_app_moment_words SET (gin_pending_list_limit = 256)"


def said_at(embedding: str, source: str, time: str) -> migrations.RunSQL:
    """Let the vectors of a table say when their texts were said."""
    return migrations.RunSQL(
        f"""
        DO $$ BEGIN
            IF NOT EXISTS (
                SELECT FROM pg_attribute WHERE attrelid = '{embedding}'::regclass AND attname = 'said_at'
            ) THEN
                ALTER TABLE {embedding} ADD COLUMN said_at timestamptz;
                UPDATE {embedding} embedding SET said_at = source.{time}
                FROM {source} source WHERE source.id = embedding.source_id;
                ALTER TABLE {embedding} ALTER COLUMN said_at SET NOT NULL;
            END IF;
        END $$
        """,  # noqa: S608 (names of our own tables)
        migrations.RunSQL.noop,
    )


def unbound(table: str) -> migrations.RunSQL:
    """Let `search_version` be any number."""
    return migrations.RunSQL(
        f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {table}_search_version_check", migrations.RunSQL.noop
    )


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0030_own_text_before"), ("sessions_app", "0015_as_made_today")]

    operations = [
        said_at("moments_app_factembedding", "moments_app_memoryatom", "formed_at"),
        said_at("moments_app_momentembedding", "moments_app_moment", "ends_at"),
        said_at("moments_app_turnembedding", "sessions_app_message", "created_at"),
        migrations.RunSQL(JOBS_SQL, migrations.RunSQL.noop),
        migrations.RunSQL(PENDING_SQL, migrations.RunSQL.noop),
        unbound("moments_app_memoryatom"),
        unbound("moments_app_moment"),
        unbound("moments_app_entity"),
        recall_anew("moments_app_memoryatom", **ATOMS, condition=FOUND, before=FOUND),
        recall_anew("moments_app_moment", scope="'u' || user_id", time="ends_at", condition="true", before="true"),
    ]
