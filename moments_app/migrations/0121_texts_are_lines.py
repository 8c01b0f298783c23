"""Make the lines of streams' texts statements, from which the texts are derived from now on.

A line that a person wrote or changed stays word for word. What a retraction keeps of a text waits for the next
consolidation when the retraction is undone. Each batch is a transaction of its own and can run again.
"""

from typing import Any

from django.db import connection, migrations, transaction
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

from moments_app.streams.former_texts import FormerVersion, add_lines

AT_ONCE = 200
# For each batch of streams. An item whose version is gone may have been in the text from the start.
GIVEN = """
UPDATE moments_app_memoryatom atom SET consolidated_at = COALESCE(
    (SELECT created_at FROM moments_app_streamversion WHERE id = LEAST(atom.absorbed_in_id, atom.shown_in_id)),
    atom.created_at
)
WHERE stream_id = ANY(%s) AND consolidated_at IS NULL AND state <> 'line'
    AND (state = 'absorbed' OR absorbed_in_id IS NOT NULL OR shown_in_id IS NOT NULL)
"""
HISTORY = """
UPDATE moments_app_statementchange change SET before = before - 'absorbed_in_id' - 'shown_in_id',
    reason = CASE WHEN reason = '' AND action IN ('merged', 'split') AND actor LIKE 'job:%%'
        THEN 'consolidation:' || to_char(change.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US') || '+00:00'
        ELSE reason END
FROM moments_app_memoryatom atom WHERE atom.id = change.statement_id AND atom.stream_id = ANY(%s)
    AND (change.before ?| ARRAY['absorbed_in_id', 'shown_in_id'])
"""
KEPT = (
    "DELETE FROM moments_app_retracteditem WHERE model = 'moments_app.streamversion'",
    """
    UPDATE moments_app_retracteditem SET data = jsonb_set(data, '{state}', '"active"')
    WHERE model = 'moments_app.memoryatom' AND data->>'state' = 'absorbed' AND NOT data ? 'merged_into'
    """,
    """
    UPDATE moments_app_retracteditem
    SET data = jsonb_set(data, '{before}', (data->'before') - 'absorbed_in_id' - 'shown_in_id')
    WHERE model = 'moments_app.statementchange' AND data->'before' ?| ARRAY['absorbed_in_id', 'shown_in_id']
    """,
)


def write(apps: StateApps, editor: BaseDatabaseSchemaEditor | None) -> None:
    """Go over all streams."""
    streams = apps.get_model("moments_app", "MemoryStream").objects.order_by("pk")
    after = 0
    while batch := list(streams.filter(pk__gt=after)[:AT_ONCE]):
        with transaction.atomic(), connection.cursor() as cursor:
            pks = [stream.pk for stream in batch]
            cursor.execute(GIVEN, [pks])
            cursor.execute(HISTORY, [pks])
            for stream in batch:
                if stream.consolidated_content:
                    _write(apps, stream)
        after = batch[-1].pk
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in KEPT:
            cursor.execute(statement)


def _write(apps: StateApps, stream: Any) -> None:
    atoms = apps.get_model("moments_app", "MemoryAtom").objects
    if atoms.filter(stream=stream, position__isnull=False).exists():
        return
    found = apps.get_model("moments_app", "StreamVersion").objects.filter(stream=stream, undone_at=None)
    columns = ("content_after", "lines", "engine", "created_at", "job_id")
    add_lines(atoms, stream, [FormerVersion(*row) for row in found.order_by("pk").values_list(*columns)])


class Migration(migrations.Migration):
    atomic = False  # so that no row is held for longer than a moment

    dependencies = [("moments_app", "0120_indexes_of_lines")]

    operations = [migrations.RunPython(write, migrations.RunPython.noop, elidable=True)]
