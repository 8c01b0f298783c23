"""What an interrupted `migrate` leaves behind, and would not go on over.

An index that is built while its table is written to is there from the beginning of its building, and stays, not valid,
when that ends early. The migration did not run then, and is run again.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import connections
from django.db.migrations import Migration

NOT_VALID = "SELECT relname FROM pg_class JOIN pg_index ON indexrelid = oid WHERE NOT indisvalid AND relname = ANY(%s)"


def drop_unfinished(plan: Sequence[tuple[Migration, bool]], using: str, **_: Any) -> None:
    """Drop those that the migrations to come build anew.

    Args:
        plan: the migrations, each with whether it is undone.
        using: the alias of the database.
    """
    names = [name for migration, is_undone in plan if not is_undone for name in _built(migration)]
    with connections[using].cursor() as cursor:
        cursor.execute(NOT_VALID, [names])
        for (name,) in cursor.fetchall():
            cursor.execute(f"DROP INDEX CONCURRENTLY {connections[using].ops.quote_name(name)}")


def _built(migration: Migration) -> Iterator[str]:
    for operation in migration.operations:
        if isinstance(operation, AddIndexConcurrently):
            yield operation.index.name
