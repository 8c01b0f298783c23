"""Backups of a whole installation in one file, to be restored into any PostgreSQL 15 or later.

A backup is a zip file: the rows of every table as PostgreSQL's own `COPY` writes them, read in one snapshot while the
site goes on; the files of archived turns; the key that was made in `DATA_DIR`; and a manifest with what there is of
each and which migrations the tables were at. It has no schema: a restore runs these migrations and then fills them, so
roles, policies and functions are those that the migrations make, whatever server it comes from and goes to.
"""

import json
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from django.conf import settings
from django.core.files import File
from django.core.files.storage import storages
from django.core.management import call_command
from django.db import connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from psycopg import sql

from memoryproject.distribution import is_distributed
from memoryproject.verification import unknown
from moments_app.models import EmbeddingModel
from sessions_app.models import Archive

FORMAT = 1
MANIFEST, KEY = "manifest.json", "secret_key"
TABLES, ARCHIVES = "tables/", "archives/"
LEFT_OUT = ("django_session",)  # logins: operators log in again
PART = 1_000_000  # bytes
LEVEL = 3  # of compression: beyond it a backup takes longer and hardly gets smaller

ON_SEVERAL = (
    "Turns are on several servers, and no file has them all of one moment: have each server archive its log, and name "
    "a moment of them all by SELECT citus_create_restore_point('NAME') (docs/operations.md, On several machines)."
)
DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError)

Say = Callable[[str], None]


class BackupError(Exception):
    """The backup can't be made, read or restored; the message says why."""


@dataclass(frozen=True)
class Table:
    """What a backup has of a table."""

    columns: list[str]
    rows: int


@dataclass(frozen=True)
class Manifest:
    """What a backup holds.

    Args:
        format: of the file.
        made_at: when, in ISO 8601.
        migrations: all that were applied, by app, in the order of their names.
        tables: by name.
        archives: names of files of archived turns.
    """

    format: int
    made_at: str
    migrations: dict[str, list[str]]
    tables: dict[str, Table] = field(default_factory=dict)
    archives: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Return the rows of all tables."""
        return sum(table.rows for table in self.tables.values())

    @classmethod
    def read(cls, file: zipfile.ZipFile) -> "Manifest":
        """Return the manifest of a backup.

        Raises:
            BackupError: it isn't one, or is of a format that this version doesn't know.
        """
        try:
            data = json.loads(file.read(MANIFEST))
            tables = {name: Table(**table) for name, table in data.pop("tables").items()}
            manifest = cls(**data, tables=tables)
        except (KeyError, TypeError, ValueError) as error:
            raise BackupError(f"{file.filename} is no backup of this platform.") from error
        if manifest.format != FORMAT:
            raise BackupError(f"{file.filename} has format {manifest.format}; this version reads {FORMAT}.")
        return manifest


# --- making one ---


def backup(path: Path, say: Say) -> Manifest:
    """Write a backup of everything.

    Args:
        path: of the file, which must not exist; it has this name only once it is whole.
        say: is told of each table.

    Raises:
        BackupError: the file exists, or the rows are on several servers.
        OSError: it can't be written; nothing of it is left.
    """
    if path.exists():
        raise BackupError(f"{path} exists already.")
    if is_distributed():
        raise BackupError(ON_SEVERAL)
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        unfinished.touch(mode=0o600)  # it has everything, the key included
        manifest = _write(unfinished, say)
        unfinished.rename(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return manifest


def _write(path: Path, say: Say) -> Manifest:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as file:
        with transaction.atomic():
            connection.cursor().execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            manifest = Manifest(FORMAT, datetime.now(UTC).isoformat(timespec="seconds"), _applied())
            for name in _tables():
                manifest.tables[name] = _write_table(file, name)
                say(f"{name}: {manifest.tables[name].rows:,} rows")
            manifest.archives.extend(Archive.objects.order_by("name").values_list("name", flat=True).distinct())
        for name in manifest.archives:
            _write_archive(file, name)
        say(f"archives: {len(manifest.archives):,} files")
        key = settings.DATA_DIR / KEY
        if key.exists():
            file.write(key, KEY)
        file.writestr(MANIFEST, json.dumps(asdict(manifest), indent=1))
    return manifest


def _tables() -> list[str]:
    names = connection.introspection.django_table_names(only_existing=True, include_views=False)
    return sorted({*names, "django_migrations"} - set(LEFT_OUT))


def _applied() -> dict[str, list[str]]:
    applied: dict[str, list[str]] = {}
    for app, name in sorted(MigrationExecutor(connection).recorder.applied_migrations()):
        applied.setdefault(app, []).append(name)
    return applied


def _write_table(file: zipfile.ZipFile, name: str) -> Table:
    columns = _columns(name)
    with connection.cursor() as cursor, file.open(f"{TABLES}{name}", "w", force_zip64=True) as member:
        with cursor.copy(_copy(name, columns, "TO STDOUT")) as copy:
            for part in copy:
                member.write(part)
        return Table(columns, cursor.rowcount)


def _columns(table: str) -> list[str]:
    """The columns that are stored; those that PostgreSQL computes are computed again."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped "
            "AND attgenerated = '' ORDER BY attnum",
            [table],
        )
        return [name for (name,) in cursor.fetchall()]


def _copy(table: str, columns: list[str], direction: str) -> sql.Composed:
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    return sql.SQL("COPY {} ({}) {}").format(sql.Identifier(table), names, sql.SQL(direction))


def _write_archive(file: zipfile.ZipFile, name: str) -> None:
    with storages["archive"].open(name) as source, file.open(f"{ARCHIVES}{name}", "w", force_zip64=True) as member:
        _pass(source, member)


def _pass(source: IO[bytes], target: Any) -> None:
    while part := source.read(PART):
        target.write(part)


# --- restoring one ---


def restore(path: Path, say: Say) -> Manifest:
    """Restore a backup into a database without data, and bring it up to this version.

    Rows are filled in by one transaction: a restore that is broken off leaves an empty database, to be tried again.

    Args:
        path: of the file.
        say: is told of each step.

    Raises:
        BackupError: the file is no backup, or cut short, or of a newer version; the database has data, or is
            distributed.
    """
    with _opened(path) as file:
        manifest = Manifest.read(file)
        _check_versions(manifest)
        _check_empty()
        say("Making the tables as they were.")
        _migrate_to(manifest)
        with transaction.atomic():
            _fill(file, manifest, say)
        for name in manifest.archives:
            _restore_archive(file, name)
        _restore_key(file, say)
    call_command("migrate", verbosity=0)
    for model in EmbeddingModel.objects.all():
        model.build_indexes(concurrently=False)
    return manifest


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as file:
            yield file
    except FileNotFoundError:
        raise BackupError(f"There is no file {path}.") from None
    except DAMAGED as error:
        raise BackupError(f"{path} is no backup, or was cut short: {error}.") from error


def _check_versions(manifest: Manifest) -> None:
    recorded = [(app, name) for app, names in manifest.migrations.items() for name in names]
    if newer := unknown(MigrationLoader(connection), recorded):
        app, name = newer[0]
        raise BackupError(f"The backup is of a newer version: this one has no migration {app}.{name}.")


def _check_empty() -> None:
    if is_distributed():
        raise BackupError(
            "The database is distributed: restore into one that isn't yet, then run manage.py distribute."
        )
    there = set(connection.introspection.table_names())
    with connection.cursor() as cursor:
        for table in ("sessions_app_userprofile", "auth_user"):
            if table in there:
                cursor.execute(sql.SQL("SELECT EXISTS (SELECT FROM {})").format(sql.Identifier(table)))
                if cursor.fetchone() == (True,):
                    raise BackupError("The database has data; a backup is restored into an empty one.")


def _migrate_to(manifest: Manifest) -> None:
    """Make the tables of the time when the backup was made; nothing is put into them but what is replaced then."""
    executor = MigrationExecutor(connection)
    graph = executor.loader.graph
    targets = [
        (app, name)
        for app, names in manifest.migrations.items()
        for name in names
        if (app, name) in graph.nodes and not _has_later(graph, app, name, set(names))
    ]
    executor.migrate(targets)


def _has_later(graph: Any, app: str, name: str, recorded: set[str]) -> bool:
    children = graph.node_map[(app, name)].children
    return any(child.key[0] == app and child.key[1] in recorded for child in children)


def _fill(file: zipfile.ZipFile, manifest: Manifest, say: Say) -> None:
    with connection.cursor() as cursor:
        names = sql.SQL(", ").join(map(sql.Identifier, manifest.tables))
        cursor.execute(sql.SQL("TRUNCATE {} CASCADE").format(names))
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")
        for name, table in manifest.tables.items():
            with cursor.copy(_copy(name, table.columns, "FROM STDIN")) as copy, file.open(f"{TABLES}{name}") as member:
                _pass(member, copy)
            if cursor.rowcount != table.rows:
                raise BackupError(f"{name} has {cursor.rowcount} rows in the backup, not {table.rows}.")
            _set_sequence(name, table)
            say(f"{name}: {table.rows:,} rows")


def _set_sequence(name: str, table: Table) -> None:
    """Have new rows numbered behind those that were restored."""
    if "id" not in table.columns:
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_get_serial_sequence(%s, 'id')", [name])
        [sequence] = cursor.fetchone() or [None]
        if sequence:
            last = sql.SQL("SELECT setval(%s, greatest((SELECT max(id) FROM {}), 1))").format(sql.Identifier(name))
            cursor.execute(last, [sequence])


def _restore_archive(file: zipfile.ZipFile, name: str) -> None:
    storage = storages["archive"]
    if not storage.exists(name):
        with file.open(f"{ARCHIVES}{name}") as member:
            saved = storage.save(name, File(member))
        if saved != name:
            raise BackupError(f"The storage of archives kept {name} as {saved}.")


def _restore_key(file: zipfile.ZipFile, say: Say) -> None:
    key = settings.DATA_DIR / KEY
    if KEY not in file.namelist():
        say("The key is not in the backup: set SECRET_KEY as it was.")
    elif not key.exists() or key.read_bytes() != file.read(KEY):
        key.parent.mkdir(parents=True, exist_ok=True)
        key.touch(mode=0o600)
        key.write_bytes(file.read(KEY))
        say(f"The key is in {key}; processes that run are to be started again.")


# --- comparing ---


def compare(path: Path) -> list[str]:
    """Return what of a backup is damaged, or differs in number from what is in the database.

    Raises:
        BackupError: the file is no backup.
    """
    with _opened(path) as file:
        manifest = Manifest.read(file)
        found = [f"{name} is damaged." for name in file.namelist() if not _is_whole(file, name)]
        with connection.cursor() as cursor:
            for name, table in manifest.tables.items():
                cursor.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(name)))
                [count] = cursor.fetchone() or [0]
                if count != table.rows and name != "django_migrations":
                    found.append(f"{name}: {table.rows:,} rows in the backup, {count:,} in the database.")
        return found


def _is_whole(file: zipfile.ZipFile, name: str) -> bool:
    try:
        with file.open(name) as member:
            while member.read(PART):
                pass
    except DAMAGED:
        return False
    return True
