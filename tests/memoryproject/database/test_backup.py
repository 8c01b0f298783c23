"""A complete backup, restored into another database."""

import json
import os
import resource
import sys
import zipfile
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.test import Client
from pydantic import SecretStr
from pytest_django.fixtures import Settings

from memoryproject.database.backup import query_column
from moments_app.models import EmbeddingModel, Moment
from sessions_app.models import Archive, Message, UserProfile
from sessions_app.retention.retain import retain
from tests.support.commands import printed
from tests.support.furnished import furnish
from tests.support.kept_rows import KeptRows
from tests.support.object_store import ObjectStore
from tests.support.other_database import connected_to
from tests.support.processes import database_url, manage, manage_all
from tests.support.retention import covered_session
from tests.support.schema import differences, schema
from tests.support.transcript import talk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow(seconds=15)]

OTHER = f"restored_{os.getpid()}"
USE = """
from sessions_app.models import Message, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.row_security import acting_for
from sessions_app.transcript.append import NewMessage, append
with acting_for("ada", application=DEFAULT, for_write=True) as ada:
    append(ada, "s1", [NewMessage(role="user", content="Hello again.")])
    print("turns of hers:", Message.objects.count())
with acting_for("stranger", application=DEFAULT) as nobody:
    print("of a stranger:", Message.objects.count())
"""


@pytest.fixture
def other() -> Iterator[str]:
    """The URL of an empty database."""
    with connection._nodb_cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {OTHER}")
    yield database_url().replace(f"/{connection.settings_dict['NAME']}?", f"/{OTHER}?")
    with connection._nodb_cursor() as cursor:
        cursor.execute(f"DROP DATABASE {OTHER} WITH (FORCE)")


@pytest.fixture
def backup(tmp_path: Path, kept_rows: KeptRows) -> Path:
    kept_rows.have("furnished", furnish)
    Archive.objects.all().delete()  # The files of these archives never existed.
    talk(UserProfile.objects.ensure("bo"), 12)
    EmbeddingModel.objects.ensure("small", 3)
    path = tmp_path / "all.backup"
    call_command("backup", str(path), stdout=sys.stderr)
    return path


def there(address: str, folder: Path) -> dict[str, str]:
    """Return the settings of another installation."""
    return {"DATABASE_URL": address, "DATA_DIR": str(folder), "SECRET_KEY": settings.SECRET_KEY}


def test_row_34_a_backup_restored_elsewhere_is_whole_and_serves(backup: Path, other: str, tmp_path: Path) -> None:
    assert backup.stat().st_mode & 0o077 == 0
    own = there(other, tmp_path)
    restored = manage("restore", str(backup), **own)
    assert restored.returncode == 0, restored.stderr
    used = manage_all(f"verify {backup}", code=USE, **own)
    turns = Message.objects.filter(user__user_id="ada").count()
    assert f"turns of hers: {turns + 1}" in used.stdout, used.stderr
    assert "of a stranger: 0" in used.stdout
    with connected_to(OTHER), pytest.raises(CommandError, match="The database has tables"):
        call_command("restore", str(backup))


@pytest.fixture
def restoring(other: str, tmp_path: Path, settings: Settings) -> Callable[..., str]:
    """Return a function that restores a file into the empty database and returns the output of the command."""
    settings.DATA_DIR = tmp_path / "elsewhere"

    def restore(path: Path, **options: object) -> str:
        with connected_to(OTHER):
            return printed("restore", str(path), **options)

    return restore


def test_row_34_a_restored_database_has_all_indexes_policies_and_privileges(
    backup: Path, restoring: Callable[..., str]
) -> None:
    whole = schema()
    assert sum("embedding_nearest_" in part for part in whole) >= 3
    restoring(backup)
    with connected_to(OTHER):
        assert differences(schema(), whole) == {}
        assert query_column("SELECT count(*) FROM pg_default_acl") == [2]


def test_row_34_the_key_is_encrypted_with_a_passphrase_or_the_output_warns(
    transactional_db: None, restoring: Callable[..., str], tmp_path: Path, settings: Settings
) -> None:
    key, passphrase, wrong = tmp_path / "secret_key", tmp_path / "passphrase", tmp_path / "wrong"
    key.write_text("the key of this installation")
    passphrase.write_text("correct horse battery staple\n")
    wrong.write_text("incorrect\n")
    there, settings.DATA_DIR = settings.DATA_DIR, tmp_path
    settings.SECRET_KEY = key.read_text()
    assert "THE KEY IS NOT ENCRYPTED" in printed("backup", str(tmp_path / "clear"))
    assert key.read_bytes() in (tmp_path / "clear").read_bytes()
    call_command("backup", str(tmp_path / "sealed"), passphrase_file=passphrase)
    assert key.read_bytes() not in (tmp_path / "sealed").read_bytes()
    settings.DATA_DIR = there
    with pytest.raises(CommandError, match="--passphrase-file"):
        restoring(tmp_path / "sealed")
    with pytest.raises(CommandError, match="The passphrase is wrong"):
        restoring(tmp_path / "sealed", passphrase_file=wrong)
    assert not (there / "secret_key").exists()
    settings.CONF = settings.CONF.model_copy(update={"secret_key": SecretStr("another key")})
    told = restoring(tmp_path / "sealed", passphrase_file=passphrase)
    assert f"Set SECRET_KEY to the text of the file {there}/secret_key." in told
    assert (there / "secret_key").read_bytes() == key.read_bytes()


def test_a_key_that_is_not_in_use_is_not_in_the_backup(tmp_path: Path, settings: Settings) -> None:
    settings.DATA_DIR = tmp_path
    (tmp_path / "secret_key").write_text("a key from before the setting SECRET_KEY")
    assert "Keep a copy of the setting SECRET_KEY." in printed("backup", str(tmp_path / "all.backup"))


def test_row_34_an_owner_who_is_not_superuser_can_restore_if_the_roles_exist(backup: Path, other: str) -> None:
    owner = f"owner_{os.getpid()}"
    with connection._nodb_cursor() as cursor:
        cursor.execute(f"CREATE ROLE {owner} LOGIN CREATEROLE")
        cursor.execute(f"ALTER DATABASE {OTHER} OWNER TO {owner}")
        for role in query_column("SELECT rolname FROM pg_roles WHERE rolname ~ '^memory_[a-z]+$'"):
            cursor.execute(f"GRANT {role} TO {owner} WITH ADMIN OPTION")
    try:
        with connected_to(OTHER):
            connection.cursor().execute("CREATE EXTENSION vector")
            own = connection.settings_dict["USER"]
            connection.settings_dict["USER"] = owner
            connection.close()
            try:
                call_command("restore", str(backup), stdout=StringIO())
                call_command("verify", str(backup), stdout=StringIO())
            finally:
                connection.settings_dict["USER"] = own
    finally:
        with connection._nodb_cursor() as cursor:
            cursor.execute(f"DROP DATABASE {OTHER} WITH (FORCE)")
            cursor.execute(f"DROP OWNED BY {owner}")
            cursor.execute(f"DROP ROLE {owner}")
            cursor.execute(f"CREATE DATABASE {OTHER}")


def test_row_34_a_backup_of_the_former_format_says_how_to_restore_it(transactional_db: None, tmp_path: Path) -> None:
    former = tmp_path / "former.backup"
    with zipfile.ZipFile(former, "w") as file:
        file.writestr("manifest.json", json.dumps({"format": 1, "made_at": "2026-11-23", "tables": {}}))
    with pytest.raises(CommandError, match="was made by an earlier version: restore it with that version"):
        call_command("restore", str(former))


def test_row_34_an_unfinished_restore_continues_only_with_its_own_file(
    transactional_db: None, restoring: Callable[..., str], tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for path in (first, second):
        call_command("backup", str(path), stdout=StringIO())
    restoring(first)
    with zipfile.ZipFile(first) as file:
        backup_id = json.loads(file.read("manifest.json"))["backup_id"]
    with connected_to(OTHER), connection.cursor() as cursor:  # the state after a kill before the last statement
        cursor.execute("CREATE TABLE restore_under_way AS SELECT %s AS backup_id", [backup_id])
    with pytest.raises(CommandError, match="This database contains an unfinished restore of another backup"):
        restoring(second)
    restoring(first)
    with pytest.raises(CommandError, match="The database has tables"):
        restoring(first)


def test_row_34_a_missing_or_outdated_postgresql_client_is_named(
    transactional_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memoryproject.database.backup.find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandError, match=r"there is no pg_dump: install the package postgresql-client-\d+"):
        call_command("backup", str(tmp_path / "all.backup"))
    old = tmp_path / "pg_dump"
    old.write_text("#!/bin/sh\necho 'pg_dump (PostgreSQL) 9.6'\n")
    old.chmod(0o755)
    with pytest.raises(CommandError, match=r"pg_dump has version 9: install the package postgresql-client-\d+"):
        call_command("backup", str(tmp_path / "all.backup"))


READ = """
from sessions_app.models import Session
from tests.support.retention import in_archives
print(len(in_archives(Session.objects.get(session_id="s1"))), "turns read")
"""


def test_row_34_archives_on_disk_can_be_restored_into_a_bucket_and_backed_up_from_it(
    ada: UserProfile, other: str, tmp_path: Path
) -> None:
    covered_session(ada, 30, live=3)
    retain()
    on_disk, in_bucket = tmp_path / "disk.backup", tmp_path / "bucket.backup"
    call_command("backup", str(on_disk), stdout=sys.stderr)
    with ObjectStore() as store:
        own = there(other, tmp_path / "elsewhere") | store.settings()
        read = manage_all(f"restore {on_disk}", f"verify {on_disk}", f"backup {in_bucket}", code=READ, **own)
        assert "30 turns read" in read.stdout, read.stderr
        assert store.names() == sorted({f"memory/{archive.name}" for archive in Archive.objects.all()})
    names = [
        [name for name in zipfile.ZipFile(path).namelist() if name.startswith("archives/")]
        for path in (on_disk, in_bucket)
    ]
    assert names[0] == names[1] != []


def test_row_34_a_damaged_or_truncated_backup_is_reported(backup: Path, tmp_path: Path) -> None:
    whole = backup.read_bytes()
    cut = tmp_path / "cut.backup"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CommandError, match=r"cut\.backup is not a backup, or is incomplete"):
        call_command("restore", str(cut))
    with zipfile.ZipFile(backup) as file:
        offset = file.getinfo("database.dump").header_offset + 2_000
    damaged = tmp_path / "damaged.backup"
    damaged.write_bytes(whole[:offset] + bytes([whole[offset] ^ 255]) + whole[offset + 1 :])
    with pytest.raises(CommandError, match=r"database\.dump is damaged"):
        call_command("verify", str(damaged))
    with pytest.raises(CommandError, match=r"database\.dump is damaged"):
        call_command("restore", str(damaged))
    with pytest.raises(CommandError, match="already exists"):
        call_command("backup", str(backup))
    with pytest.raises(CommandError, match="There is no file"):
        call_command("restore", str(tmp_path / "none"))
    with pytest.raises(CommandError, match=f"{tmp_path}: Is a directory"):
        call_command("verify", str(tmp_path))
    with pytest.raises(CommandError, match="is not UTF-8 text"):
        call_command("backup", str(tmp_path / "new"), passphrase_file=damaged)


def test_row_34_a_backup_that_runs_out_of_space_reports_it_and_leaves_no_file(
    transactional_db: None, tmp_path: Path
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, before[1]))
    try:
        with pytest.raises(CommandError, match="File too large"):
            call_command("backup", str(tmp_path / "all.backup"), stdout=StringIO())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CommandError, match="No such file or directory"):
        call_command("backup", str(tmp_path / "nowhere" / "all.backup"))


def test_row_34_verify_names_what_is_wrong() -> None:
    session = talk(UserProfile.objects.ensure("ada"), 6)
    call_command("verify")
    session.messages.filter(sequence=3).delete()
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE moments_app_moment DISABLE ROW LEVEL SECURITY")
    try:
        with pytest.raises(CommandError) as error:
            call_command("verify")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE moments_app_moment ENABLE ROW LEVEL SECURITY")
    assert f"{Moment._meta.db_table} has no row-level security policy" in str(error.value)
    assert "1 sessions have wrong counters" in str(error.value)


def test_row_34_a_site_whose_requests_would_fail_is_not_ready(client: Client) -> None:
    assert client.get("/readyz").status_code == 200
    with connection.cursor() as cursor:
        cursor.execute("REVOKE SELECT ON sessions_app_session FROM memory_request")
    try:
        answer = client.get("/readyz")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("GRANT SELECT ON sessions_app_session TO memory_request")
    assert answer.status_code == 503
    assert answer.json()["checks"]["database"] == "The database transaction of a request fails: ProgrammingError."
