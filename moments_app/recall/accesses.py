"""Count how often recall returns a fact, to show operators which facts are useful."""

from collections.abc import Iterable

from django.db import connection
from django.utils import timezone

from sessions_app.database.deferred_writes import WriteBehind

_ATOMS = "rem://atoms/"
# Lock the rows in order, to prevent deadlocks between processes.
_COUNT_SQL = """
WITH accessed AS (SELECT unnest(%s::uuid[]) AS atom_id, unnest(%s::timestamptz[]) AS at),
counted AS (SELECT atom_id, count(*) AS times, max(at) AS latest FROM accessed GROUP BY atom_id),
locked AS (
    SELECT id, times, latest FROM moments_app_memoryatom atom JOIN counted USING (atom_id)
    ORDER BY id FOR NO KEY UPDATE OF atom
)
UPDATE moments_app_memoryatom atom SET access_count = access_count + times, last_accessed_at = latest
FROM locked WHERE atom.id = locked.id
"""


def note(refs: Iterable[str]) -> None:
    """Count one access to each fact. The count is written later, without delaying the caller.

    Args:
        refs: addresses of items. Items that are not facts are not counted.
    """
    for ref in refs:
        if ref.startswith(_ATOMS):
            waiting.note((ref.removeprefix(_ATOMS), timezone.now().isoformat()))


def _write(batch: list[tuple[str, str]]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_COUNT_SQL, [[atom_id for atom_id, _ in batch], [at for _, at in batch]])


waiting = WriteBehind("fact-accesses", _write)
