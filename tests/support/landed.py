"""The migrations that have landed, each with a digest of what it does: `landed.txt`, beside this module.

    python -m tests.support.landed

adds those that are new. What stands there is never written again: a database on which a migration ran does not run it
a second time, so whoever edits it makes new databases unlike those there are.
"""

import hashlib
import inspect
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import django
from django.db.migrations import Migration, RunSQL, SeparateDatabaseAndState
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation

from memoryproject import extras

LIST = Path(__file__).with_name("landed.txt")
OWN = ("moments_app", "sessions_app", *extras.available())


def digests() -> dict[str, str]:
    """Return the digest of each migration of ours, by its name."""
    return {f"{app}.{name}": digest(migration) for (app, name), migration in _there().items() if app in OWN}


def digest(migration: Migration) -> str:
    """Return what changes with the migration's source, and with SQL that it takes from elsewhere."""
    source = inspect.getsource(sys.modules[migration.__module__])
    return hashlib.sha256("\0".join([source, *_statements(migration.operations)]).encode()).hexdigest()


def _statements(operations: Sequence[Operation]) -> Iterator[str]:
    for operation in operations:
        if isinstance(operation, RunSQL):
            yield f"{operation.sql}\0{operation.reverse_sql}"
        elif isinstance(operation, SeparateDatabaseAndState):
            yield from _statements(operation.database_operations)


def replaced() -> set[str]:
    """Return the names of those that a squashed one stands for, which may go."""
    return {f"{app}.{name}" for migration in _there().values() for app, name in migration.replaces}


def _there() -> dict[tuple[str, str], Migration]:
    loader = MigrationLoader(None, load=False)
    loader.load_disk()
    return loader.disk_migrations


def listed(text: str) -> dict[str, str]:
    """Return what a list says."""
    return dict(line.split() for line in text.splitlines())


def faults(landed: Mapping[str, str], there: Mapping[str, str], replaced: set[str]) -> list[str]:
    """Return what is wrong with the migrations that are there, and what to do about it."""
    changed = [name for name in sorted(landed) if there.get(name, landed[name]) != landed[name]]
    gone = sorted({*landed} - {*there} - replaced)
    new = sorted({*there} - {*landed})
    return [
        *(f"{name} has landed and is edited, or SQL that it takes from a module: write a new one." for name in changed),
        *(f"{name} has landed and is gone: databases on which it did not run need it." for name in gone),
        *(f"{name} is not listed: python -m tests.support.landed" for name in new),
    ]


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryproject.settings")
    django.setup()
    landed = listed(LIST.read_text()) if LIST.exists() else {}
    both = digests() | landed
    LIST.write_text("".join(f"{name} {both[name]}\n" for name in sorted(both)))


if __name__ == "__main__":
    main()
