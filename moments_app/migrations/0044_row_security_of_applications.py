"""Of what belongs to nobody, a request sees the rows of its application.

A process of an earlier release, which does not name its application, sees none of them until it is replaced.
"""

from django.db import migrations

from moments_app.vector_search import nearest
from sessions_app.row_security import ACTING_APPLICATION, IS_REQUEST, ROLE, keep_in_application
from sessions_app.word_search import recall_within

STREAMS = "moments_app_memorystream"
ATOMS = "moments_app_memoryatom"
VECTORS = "moments_app_factembedding"
PROMPTS, VERSIONS = "moments_app_promptresource", "moments_app_promptversion"
SHARDS = f"SELECT id FROM {STREAMS} WHERE stream_type = 'agent' AND application_id = {ACTING_APPLICATION}"  # noqa: S608
SEEN = f"CASE WHEN {IS_REQUEST} THEN ARRAY({SHARDS} AND id = ANY(shards)) ELSE shards END"


def seen_in(table: str, other: str, column: str) -> str:
    """Return SQL that is true where the row of another table that a column names is seen."""
    return f"EXISTS (SELECT FROM {other} seen WHERE seen.id = {table}.{column})"


def of_stream(table: str, **given: object) -> migrations.RunSQL:
    """Return an operation that limits a table's rows of nobody to those of streams that are seen."""
    return keep_in_application(table, seen_in(table, STREAMS, "stream_id"), **given)  # type: ignore[arg-type]


def prompts(table: str, seen: str) -> migrations.RunSQL:
    """Return an operation that limits a table of prompts."""
    return migrations.RunSQL(
        f"""
        ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
        CREATE POLICY acting_user ON {table} TO {ROLE} USING ({seen});
        """,
        f"DROP POLICY acting_user ON {table}; ALTER TABLE {table} DISABLE ROW LEVEL SECURITY;",
    )


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0043_shards_in_applications")]

    operations = [
        keep_in_application(STREAMS, f"application_id = {ACTING_APPLICATION}"),
        of_stream(ATOMS, condition="state <> 'evicted'"),
        of_stream("moments_app_streamversion", condition="undone_at IS NULL"),
        of_stream("moments_app_job"),
        keep_in_application(VECTORS, seen_in(VECTORS, ATOMS, "source_id")),
        of_stream("moments_app_vocabulary", changes=False),
        keep_in_application(
            "moments_app_word", seen_in("moments_app_word", "moments_app_vocabulary", "vocabulary_id"), changes=False
        ),
        prompts(PROMPTS, f"application_id IS NULL OR application_id = {ACTING_APPLICATION}"),
        prompts(VERSIONS, seen_in(VERSIONS, PROMPTS, "resource_id")),
        recall_within(
            ATOMS,
            shards=SHARDS,
            scope="COALESCE('u' || user_id, 's' || stream_id)",
            time="formed_at",
            condition="state <> 'evicted'",
        ),
        migrations.RunSQL(
            nearest(VECTORS, shards_of=ATOMS, seen_shards=SEEN).sql, nearest(VECTORS, shards_of=ATOMS).sql
        ),
    ]
