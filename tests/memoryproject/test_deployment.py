"""An external PostgreSQL: `DATABASE_URL`, and an owner with few rights."""

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from django.conf import settings
from django.db import connection

from memoryproject.database import embedded
from sessions_app.database.database_roles import ADMIN_ROLE, FUNCTIONS_ROLE, WEB_ROLE, WORKER_ROLE, administrators_sql
from tests.support.processes import manage, manage_all

PROCESSES = (WEB_ROLE, ADMIN_ROLE, WORKER_ROLE)
NAME = f"deployment_test_{os.getpid()}"  # test processes share one server
ROLES = ("memory_request", "memory_operator", *PROCESSES)
APPEND = """
from sessions_app.transcript.append import NewMessage, append
from sessions_app.models.application import DEFAULT
from sessions_app.row_security import acting_for
with acting_for("ada", application=DEFAULT, create=True) as user:
    append(user, "s1", [NewMessage(role="user", content="Hello.")])
with acting_for("bo", application=DEFAULT, create=True) as user:
    from sessions_app.models import Message
    print("seen by another:", Message.objects.count())
"""
WITHOUT_A_NAME = """
from django.db import ProgrammingError, connection
from sessions_app.models import UserProfile
print(connection.settings_dict["USER"], "sees", UserProfile.objects.count())
try:
    Message.objects.count()
except ProgrammingError as error:
    print(type(error).__name__)
"""


@pytest.fixture
def administrator() -> Iterator["psycopg.Connection[tuple[object, ...]]"]:
    """Connect as a superuser; drop the database and its owner afterward."""
    folder = embedded.ensure_running(settings.EMBEDDED_DATABASE_DIR)
    with psycopg.connect(f"host={folder} dbname=postgres user=postgres", autocommit=True) as connection:
        _drop(connection)
        yield connection
        _drop(connection)


def _drop(connection: "psycopg.Connection[tuple[object, ...]]") -> None:
    connection.execute(f"DROP DATABASE IF EXISTS {NAME}")
    for name in (NAME, f"{NAME}_web", f"{NAME}_worker"):
        connection.execute(f"DROP ROLE IF EXISTS {name}")


@pytest.fixture
def owners(tmp_path: Path) -> dict[str, str]:
    """The settings of an installation that the owner migrates."""
    socket = embedded.ensure_running(settings.EMBEDDED_DATABASE_DIR)
    return {"DATABASE_URL": f"postgres://{NAME}@/{socket}/{NAME}", "DATA_DIR": str(tmp_path)}


@pytest.mark.slow(seconds=20)
@pytest.mark.parametrize("rights", ["LOGIN CREATEROLE", "LOGIN"])
def test_an_owner_who_is_not_superuser_can_deploy(
    administrator: "psycopg.Connection[tuple[object, ...]]", tmp_path: Path, owners: dict[str, str], rights: str
) -> None:
    administrator.execute(f"CREATE ROLE {NAME} {rights}")
    administrator.execute(f"CREATE DATABASE {NAME} OWNER {NAME}")
    if rights == "LOGIN":
        administrator.execute(administrators_sql(NAME, web=f"{NAME}_web", worker=f"{NAME}_worker"))
    for role in ROLES:  # another owner may have created the role
        administrator.execute(f"GRANT {role} TO {NAME}")
    with psycopg.connect(administrator.info.dsn, dbname=NAME, autocommit=True) as there:
        there.execute("CREATE EXTENSION vector")
    migrated = manage_all("migrate", code=APPEND, **owners)
    assert "seen by another: 0" in migrated.stdout, migrated.stderr
    assert not (tmp_path / "postgres").exists()
    if rights == "LOGIN":
        _serve_by_own_logins(owners)
    else:
        _give_functions_away(administrator, owners)
    verified = manage("verify", **owners)
    assert verified.returncode == 0, verified.stderr


def _give_functions_away(administrator: "psycopg.Connection[tuple[object, ...]]", owners: dict[str, str]) -> None:
    """Run the reported SQL, because this owner is not a member of the role that owns the functions."""
    told = manage("verify", **owners).stderr.removeprefix("CommandError: ").splitlines()
    assert len(told) == 2 and all(FUNCTIONS_ROLE in line for line in told), told
    warned = manage("check", "--deploy", **owners).stderr
    assert warned.count("memoryproject.W002") == 2, warned
    with psycopg.connect(administrator.info.dsn, dbname=NAME, autocommit=True) as there:
        for line in told:
            there.execute(line.partition(" runs: ")[2].encode())


def _serve_by_own_logins(owners: dict[str, str]) -> None:
    """Run as a web process does, with a login that owns nothing and sees only its rows."""
    web = {"WEB_DATABASE_URL": owners["DATABASE_URL"].replace(f"//{NAME}@", f"//{NAME}_web@"), "MEMORY_PROCESS": "web"}
    seen = manage("shell", "-v", "0", "-c", APPEND + WITHOUT_A_NAME, **owners | web)
    assert seen.stdout.splitlines() == ["seen by another: 0", f"{NAME}_web sees 0", "ProgrammingError"], seen.stderr


@pytest.mark.slow
def test_migrating_fails_with_the_name_of_a_missing_role(
    administrator: "psycopg.Connection[tuple[object, ...]]", owners: dict[str, str]
) -> None:
    administrator.execute(f"CREATE ROLE {NAME} LOGIN")
    administrator.execute(f"CREATE DATABASE {NAME} OWNER {NAME}")
    migrated = manage("migrate", "--verbosity", "0", **owners)
    assert migrated.returncode != 0
    assert "memory_request" in migrated.stderr


@pytest.mark.slow
@pytest.mark.parametrize("address", ["/{folder}/{name}", "/{name}?host={folder}", "{quoted}/{name}"])
def test_a_url_can_name_the_folder_of_a_socket(transactional_db: None, tmp_path: Path, address: str) -> None:
    connection.ensure_connection()
    info = connection.connection.info
    there = address.format(folder=info.host, quoted=quote(info.host, safe=""), name=info.dbname)
    code = "from django.db import connection; connection.ensure_connection(); print(connection.connection.info.dbname)"
    url = f"postgres://{info.user}@{there}"
    seen = manage("shell", "-v", "0", "-c", code, DATABASE_URL=url, DATA_DIR=str(tmp_path))
    assert seen.stdout.strip() == info.dbname, seen.stderr
