"""`vacuum`: free the space of deleted rows, and rewrite tables after an erasure.

In PostgreSQL, the bytes of a deleted row stay in the table's file until another row needs the space, even after a plain
`VACUUM`. After an erasure, tables of at most `REWRITTEN` bytes are therefore rewritten, which locks each for about a
second. Larger tables would be locked for longer, so their erased bytes stay until they are overwritten
(docs/security.md, *What an erasure leaves*).
"""

import time
from dataclasses import asdict, dataclass
from typing import Any

from django.db import connection
from django.db.models import Max

from sessions_app.database.database_roles import LOGINS
from sessions_app.database.several_servers import remote_tables
from sessions_app.models import Event
from sessions_app.people.erase import DELETED_EVENT, ERASED_EVENT

REWRITTEN = 16_000_000  # maximum size in bytes, with indexes, of a table that is rewritten
TRIES, PAUSE = 20, 0.5  # attempts to lock a table that is in use, and the seconds between them

# Tables with a vector index are not rewritten, because the index takes minutes to build. `VACUUM FULL` doesn't set
# `last_vacuum`, so a table without a later plain `VACUUM` is rewritten again.
_TABLES_SQL = """
SELECT relname, pg_has_role(relowner, 'USAGE') OR CASE WHEN current_setting('server_version_num')::int >= 170000
        THEN has_table_privilege(pg_class.oid, 'MAINTAIN') ELSE false END,
    pg_total_relation_size(pg_class.oid) <= %(most)s AND relname <> ALL (%(elsewhere)s)
        AND %(erased)s::timestamptz > COALESCE(pg_stat_get_last_vacuum_time(pg_class.oid), '-infinity')
        AND NOT EXISTS (SELECT FROM pg_index JOIN pg_class index ON index.oid = indexrelid
            JOIN pg_am ON pg_am.oid = index.relam WHERE indrelid = pg_class.oid AND amname = 'hnsw')
FROM pg_class WHERE pg_class.oid = ANY (%(tables)s::regclass[]) AND relname !~ %(logins)s ORDER BY relname
"""


@dataclass(frozen=True)
class VacuumResult:
    """How many tables were vacuumed, how many were rewritten, and how many were skipped for each reason."""

    vacuumed: int = 0
    rewritten: int = 0
    in_use: int = 0
    of_another_owner: int = 0

    def __str__(self) -> str:
        return ", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in asdict(self).items())


def vacuum(*, dry_run: bool = False) -> VacuumResult:
    """Free the space of deleted rows, and rewrite tables after an erasure."""
    tables = _tables()
    allowed = [(name, is_rewritten) for name, may, is_rewritten in tables if may]
    rewritten = [name for name, is_rewritten in allowed if is_rewritten]
    # If a table is in use, don't vacuum it either. Otherwise, the next run would not notice that it must be rewritten.
    in_use = [] if dry_run else [name for name in rewritten if not _rewrite(name)]
    vacuumed = [name for name, _ in allowed if name not in in_use]
    for name in [] if dry_run else vacuumed:
        _execute(f"VACUUM (ANALYZE) {connection.ops.quote_name(name)}")
    return VacuumResult(len(vacuumed), len(rewritten) - len(in_use), len(in_use), len(tables) - len(allowed))


def _tables() -> list[tuple[str, bool, bool]]:
    erased = Event.objects.filter(type__in=(ERASED_EVENT, DELETED_EVENT)).aggregate(last=Max("created_at"))["last"]
    with connection.cursor() as cursor:
        named = {
            "tables": connection.introspection.django_table_names(only_existing=True, include_views=False),
            "elsewhere": remote_tables(),
            "logins": LOGINS,  # workers may not vacuum these
            "erased": erased,
            "most": REWRITTEN,
        }
        cursor.execute(_TABLES_SQL, named)
        return list(cursor.fetchall())


def _rewrite(table: str) -> bool:
    """Rewrite a table while no other connection uses it. Return whether that succeeded."""
    before = _file(table)
    for _ in range(TRIES):
        _execute(f"VACUUM (FULL, SKIP_LOCKED) {connection.ops.quote_name(table)}")
        if _file(table) != before:
            return True
        time.sleep(PAUSE)
    return False


def _file(table: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_relation_filenode(%s::regclass)", [table])
        return cursor.fetchone()


def _execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)
