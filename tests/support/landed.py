"""The merged migrations, each with a hash of its operations: `landed.txt`, next to this module.

    python -m tests.support.landed

adds new ones. Existing lines never change: a migration runs only once on a database, so an edited one would make new
databases differ from existing ones.
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
    """Return the hashes of our migrations, keyed by name."""
    return {f"{app}.{name}": digest(migration) for (app, name), migration in _there().items() if app in OWN}


def digest(migration: Migration) -> str:
    """Return a hash that depends on the migration's source, and on SQL that it imports."""
    source = inspect.getsource(sys.modules[migration.__module__])
    return hashlib.sha256("\0".join([source, *_statements(migration.operations)]).encode()).hexdigest()


def _statements(operations: Sequence[Operation]) -> Iterator[str]:
    for operation in operations:
        if isinstance(operation, RunSQL):
            yield f"{operation.sql}\0{operation.reverse_sql}"
        elif isinstance(operation, SeparateDatabaseAndState):
            yield from _statements(operation.database_operations)


def replaced() -> set[str]:
    """Return the names of migrations that a squashed one replaces, which may be deleted."""
    return {f"{app}.{name}" for migration in _there().values() for app, name in migration.replaces}


def _there() -> dict[tuple[str, str], Migration]:
    loader = MigrationLoader(None, load=False)
    loader.load_disk()
    return loader.disk_migrations


def listed(text: str) -> dict[str, str]:
    """Parse the list."""
    return dict(line.split() for line in text.splitlines())


def faults(landed: Mapping[str, str], there: Mapping[str, str], replaced: set[str]) -> list[str]:
    """Return the problems of the existing migrations, with instructions."""
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
