"""A database with all migrations, which is kept between runs. The test databases are copies of it.

Running the migrations takes as long as two hundred tests, and copying the database a tenth of a second. The first
process that finds no database for the current migrations creates it and drops older ones, while other processes wait.
Each choice of extras has its own database. It doesn't contain what `migrate` adds by code after the last migration,
such as schedules and prompts. Each run adds these itself.
"""

from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.db.migrations.executor import MigrationExecutor

from tests.support.folders import PREFIX, UNFINISHED, fingerprint
from tests.support.other_database import connected_to

LOCK = 5_107_326  # an arbitrary number; its holder creates the database
_VERSIONS_SQL = "SELECT version(), (SELECT default_version FROM pg_available_extensions WHERE name = 'vector')"


def migrated() -> str:
    """Return the name of the database. Create it if it is missing."""
    with connection._nodb_cursor() as cursor:
        cursor.execute(_VERSIONS_SQL)
        name = PREFIX + fingerprint(str(cursor.fetchone()))
        cursor.execute("SELECT pg_advisory_lock(%s)", [LOCK])  # held until this connection closes
        if name not in _there(cursor):
            _make(cursor, name)
    return name


def _there(cursor: CursorWrapper) -> list[str]:
    cursor.execute("SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [PREFIX])
    return [name for (name,) in cursor.fetchall()]


def _make(cursor: CursorWrapper, name: str) -> None:
    """Create it under another name first, so its real name shows that it is complete."""
    for old in _there(cursor):
        cursor.execute(f"DROP DATABASE {old}")
    cursor.execute(f"CREATE DATABASE {UNFINISHED}")
    _migrate(UNFINISHED)
    cursor.execute(f"ALTER DATABASE {UNFINISHED} RENAME TO {name}")


def _migrate(database: str) -> None:
    """Run all migrations in a database."""
    with connected_to(database):
        executor = MigrationExecutor(connection)
        executor.migrate(executor.loader.graph.leaf_nodes())
