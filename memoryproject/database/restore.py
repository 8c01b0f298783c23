"""Restore a backup into a database without tables.

Archive files and the key are restored first. `pg_restore` then fills the database in one transaction, and `migrate`
upgrades it to this version. If a restore is killed, run it again with the same file to continue. While it is
unfinished, a table contains the id of the backup.
"""

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfileobj
from subprocess import PIPE
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import IO, cast

from django.conf import settings
from django.core.files import File
from django.core.files.storage import Storage, storages
from django.core.management import call_command
from django.db import connection, transaction
from django.db.migrations.loader import MigrationLoader
from psycopg import sql

from memoryproject.database.backup import (
    ARCHIVES,
    DUMP,
    ENCRYPTED_KEY,
    KEY,
    PART,
    BackupError,
    Manifest,
    ProgramFailed,
    Report,
    WrongPassphrase,
    damaged_parts,
    decrypt,
    open_backup,
    query_column,
    run_program,
)
from memoryproject.database.verification import partly_applied, unknown_to_this_version
from sessions_app.database.database_roles import create_roles
from sessions_app.database.several_servers import remote_tables

LOCK = 6_184_092  # arbitrary id of the advisory lock that allows only one restore at a time
PROGRESS_TABLE = "restore_under_way"  # a table with the id of the backup
EXCLUDED = (" SCHEMA - public ", " SCHEMA public ", " DEFAULT ACL ")  # entries of a dump that are not restored
# The connection of a killed restore's `pg_restore` may still be open.
_LEFT_BEHIND_SQL = """
SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'pg_restore' AND pid <> pg_backend_pid()
"""


def restore(path: Path, report: Report, passphrase: str = "") -> Manifest:
    """Restore a backup into a database without tables, and upgrade it to this version.

    Args:
        passphrase: The passphrase of the key. Blank if the key is not encrypted.

    Raises:
        BackupError: The backup can't be read or is from a newer version, the passphrase is wrong, the database is not
            empty, is distributed or lacks a role, or `pg_restore` fails.
    """
    with open_backup(path) as file:
        manifest = Manifest.read(file)
        _check_versions(manifest)
        if found := damaged_parts(file):
            raise BackupError(" ".join(found))
        key = _key(file, passphrase)
        with _locked():
            _record_start(manifest)
            _prepare(manifest)
            for name in manifest.archives:
                _restore_archive(file, name)
            report(f"archives: {len(manifest.archives):,} files")
            report(_restore_key(key))
            if not _has_tables():
                _fill(file)
            report(f"database: {manifest.rows:,} rows in {len(manifest.tables)} tables")
            _finish(manifest)
    return manifest


def _check_versions(manifest: Manifest) -> None:
    recorded = [(app, name) for app, names in manifest.migrations.items() for name in names]
    if newer := unknown_to_this_version(MigrationLoader(None), recorded):
        app, name = newer[0]
        raise BackupError(
            f"The backup is from a newer version, with the migration {app}.{name}. Install that version first."
        )
    if problem := partly_applied(recorded):
        raise BackupError(problem)


@contextmanager
def _locked() -> Iterator[None]:
    """Lock out other restores, and close the connections of a killed one."""
    try:
        query_column(f"SELECT pg_advisory_lock({LOCK})")
        query_column(_LEFT_BEHIND_SQL)
        yield
    except ProgramFailed as error:
        raise BackupError(str(error)) from error
    finally:
        query_column(f"SELECT pg_advisory_unlock({LOCK})")


def _record_start(manifest: Manifest) -> None:
    """Record which backup is being restored. Raise `BackupError` if the database has other tables or is distributed."""
    if remote_tables():
        raise BackupError(
            "The tables of this database are distributed over several servers. Restore into a database without "
            "distributed tables, then run manage.py distribute."
        )
    under_way = query_column(f"SELECT backup_id FROM {PROGRESS_TABLE}") if _table_exists(PROGRESS_TABLE) else []  # noqa: S608
    if under_way == [manifest.backup_id]:
        return
    if _has_tables():
        raise BackupError(
            "This database contains an unfinished restore of another backup. Continue with that backup file, or use "
            "an empty database."
            if under_way
            else "The database has tables. Restore into an empty database."
        )
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {PROGRESS_TABLE}")
        cursor.execute(f"CREATE TABLE {PROGRESS_TABLE} AS SELECT %s::text AS backup_id", [manifest.backup_id])


def _has_tables() -> bool:
    return _table_exists("django_migrations")


def _table_exists(table: str) -> bool:
    return query_column(f"SELECT to_regclass('public.{table}') IS NOT NULL") == [True]


def _prepare(manifest: Manifest) -> None:
    """Create roles and extensions, which the dump lacks. Raise `BackupError` if other roles are missing."""
    create_roles()
    with connection.cursor() as cursor:
        for name in manifest.extensions:
            cursor.execute(sql.SQL("CREATE EXTENSION IF NOT EXISTS {}").format(sql.Identifier(name)))
    if missing := sorted({*manifest.roles} - {*query_column("SELECT rolname FROM pg_roles")}):
        raise BackupError(f"Create these roles first (CREATE ROLE or manage.py create_roles): {', '.join(missing)}.")


def _restore_archive(file: zipfile.ZipFile, name: str) -> None:
    """Write a file. Replace one that a killed restore left incomplete."""
    storage, member = storages["archive"], file.getinfo(f"{ARCHIVES}{name}")
    if storage.exists(name):
        if _checksum(storage, name) == member.CRC:
            return
        storage.delete(name)
    with file.open(member) as source:
        saved = storage.save(name, File(source))
    if saved != name:
        raise BackupError(f"The archive storage saved {name} under another name, {saved}.")


def _checksum(storage: Storage, name: str) -> int:
    value = 0
    with storage.open(name) as stored:
        while part := stored.read(PART):
            value = zlib.crc32(part, value)
    return value


def _key(file: zipfile.ZipFile, passphrase: str) -> bytes | None:
    """Return the key, or None if it is not in the backup. Raise `BackupError` if the passphrase is missing or wrong."""
    if ENCRYPTED_KEY not in file.namelist():
        return file.read(KEY) if KEY in file.namelist() else None
    if not passphrase:
        raise BackupError("The key in the backup is encrypted. Name the file with its passphrase in --passphrase-file.")
    try:
        return decrypt(file.read(ENCRYPTED_KEY), passphrase)
    except WrongPassphrase:
        raise BackupError("The passphrase is wrong: it does not decrypt the key in the backup.") from None


def _restore_key(key: bytes | None) -> str:
    """Write the key. Return a sentence that says what the operator has to do."""
    path: Path = settings.DATA_DIR / KEY
    if key is None:
        return "The key is not in the backup. Set SECRET_KEY to its former value."
    if not path.exists() or path.read_bytes() != key:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"{KEY}.restored")
        fresh.touch(mode=0o600)
        fresh.write_bytes(key)
        fresh.replace(path)
    if (configured := settings.CONF.secret_key.get_secret_value()) and configured != key.decode():
        return f"SECRET_KEY differs from the key in the backup. Set SECRET_KEY to the text of the file {path}."
    return f"The key is in {path}. Restart all running processes."


def _fill(file: zipfile.ZipFile) -> None:
    with NamedTemporaryFile("w") as wanted:
        wanted.writelines(_entries(file))
        wanted.flush()
        options = ["--single-transaction", "--no-owner", f"--use-list={wanted.name}"]
        with run_program("pg_restore", *options, stdin=PIPE) as process, file.open(DUMP) as dump:
            copyfileobj(dump, cast(IO[bytes], process.stdin), PART)


def _entries(file: zipfile.ZipFile) -> list[str]:
    """Return the entries of the dump to restore: all except the schema, its privileges, and default privileges.

    The schema already exists. The privileges name the former owner, so `migrate` and `_finish` grant them again.
    """
    with TemporaryFile("w+") as listed:
        with run_program("pg_restore", "--list", stdin=PIPE, stdout=listed) as process, file.open(DUMP) as dump:
            copyfileobj(dump, cast(IO[bytes], process.stdin), PART)
        listed.seek(0)
        return [line for line in listed if not any(entry in line for entry in EXCLUDED)]


def _finish(manifest: Manifest) -> None:
    with connection.cursor() as cursor:
        for statement in manifest.defaults:
            cursor.execute(statement)
    call_command("migrate", verbosity=0)
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE {PROGRESS_TABLE}")
