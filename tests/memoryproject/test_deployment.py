"""An external PostgreSQL: `DATABASE_URL`, and an owner with few rights."""

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
from django.conf import settings
from django.db import connection

from memoryproject import conf
from memoryproject.database import embedded
from memoryproject.database.base import DatabaseWrapper
from memoryproject.settings import database_of
from sessions_app.database.database_roles import ADMIN_ROLE, FUNCTIONS_ROLE, WEB_ROLE, WORKER_ROLE, administrators_sql
from tests.support.processes import manage, manage_all

PROCESSES = (WEB_ROLE, ADMIN_ROLE, WORKER_ROLE)
NAME = f"deployment_test_{os.getpid()}"  # test processes share one server
MIGRATED, COPY = f"{NAME}_migrated", f"{NAME}_copy"
OTHER = f"{NAME}_other"  # a database and its owner
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


Administrator = psycopg.Connection[tuple[object, ...]]


@pytest.fixture(scope="module")
def administrator() -> Iterator[Administrator]:
    """A connection of a superuser to a server without the database and its owner, which are dropped afterward."""
    folder = embedded.ensure_running(settings.EMBEDDED_DATABASE_DIR)
    with psycopg.connect(f"host={folder} dbname=postgres user=postgres", autocommit=True) as connection:
        _drop(connection)
        connection.execute(f"CREATE ROLE {NAME} LOGIN")
        yield connection
        _drop(connection)


def _drop(connection: Administrator) -> None:
    for name in (COPY, MIGRATED, OTHER):
        connection.execute(f"DROP DATABASE IF EXISTS {name}")
    for name in (NAME, OTHER, f"{NAME}_web", f"{NAME}_worker"):
        connection.execute(f"DROP ROLE IF EXISTS {name}")


def installation(database: str, folder: Path, *, owner: str = NAME) -> dict[str, str]:
    """Return the settings of an installation that the owner of a database migrates."""
    socket = embedded.ensure_running(settings.EMBEDDED_DATABASE_DIR)
    return {"DATABASE_URL": f"postgres://{owner}@/{socket}/{database}", "DATA_DIR": str(folder)}


def connected_to(database: str, administrator: Administrator) -> Administrator:
    return psycopg.connect(administrator.info.dsn, dbname=database, autocommit=True)


@pytest.fixture(scope="module")
def databases(administrator: Administrator, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A database that its owner migrated and uses, and a copy, because migrating takes longer than everything else."""
    administrator.execute(f"CREATE DATABASE {MIGRATED} OWNER {NAME}")
    for role in ROLES:  # another owner may have created the role
        administrator.execute(f"GRANT {role} TO {NAME}")
    with connected_to(MIGRATED, administrator) as there:
        there.execute("CREATE EXTENSION vector")
    folder = tmp_path_factory.mktemp("owner")
    done = manage_all("migrate", code=APPEND, **installation(MIGRATED, folder))
    assert "seen by another: 0" in done.stdout, done.stderr
    assert not (folder / "postgres").exists()
    administrator.execute(f"CREATE DATABASE {COPY} TEMPLATE {MIGRATED} OWNER {NAME}")


@pytest.fixture
def without_role_of_functions(databases: None, administrator: Administrator) -> None:
    """The owner is not a member of the role that owns the functions, whatever an earlier test granted."""
    administrator.execute(f"REVOKE {FUNCTIONS_ROLE} FROM {NAME}")


@pytest.mark.slow(seconds=20)
def test_an_owner_who_is_not_superuser_can_deploy_if_an_administrator_runs_the_reported_sql(
    administrator: Administrator, without_role_of_functions: None, tmp_path: Path
) -> None:
    owners = installation(MIGRATED, tmp_path)
    told = manage("verify", **owners).stderr.removeprefix("CommandError: ").splitlines()
    assert len(told) == 2 and all(FUNCTIONS_ROLE in line for line in told), told
    warned = manage("check", "--deploy", **owners).stderr
    assert warned.count("memoryproject.W002") == 2, warned
    with connected_to(MIGRATED, administrator) as there:
        for line in told:
            there.execute(line.partition(" runs: ")[2].encode())
    verified = manage("verify", **owners)
    assert verified.returncode == 0, verified.stderr


@pytest.mark.slow
def test_an_owner_with_roles_from_an_administrator_can_deploy_and_serve_by_own_logins(
    administrator: Administrator, without_role_of_functions: None, tmp_path: Path
) -> None:
    """Serve as a web process does, with a login that owns nothing and sees only its rows."""
    owners = installation(COPY, tmp_path)
    administrator.execute(administrators_sql(NAME, web=f"{NAME}_web", worker=f"{NAME}_worker"))
    verified = manage_all("migrate", "verify", **owners)
    assert verified.returncode == 0, verified.stderr
    web = {"WEB_DATABASE_URL": owners["DATABASE_URL"].replace(f"//{NAME}@", f"//{NAME}_web@"), "MEMORY_PROCESS": "web"}
    seen = manage("shell", "-v", "0", "-c", APPEND + WITHOUT_A_NAME, **owners | web)
    assert seen.stdout.splitlines() == ["seen by another: 0", f"{NAME}_web sees 0", "ProgrammingError"], seen.stderr


@pytest.mark.slow
def test_migrating_fails_with_the_name_of_a_missing_role(administrator: Administrator, tmp_path: Path) -> None:
    administrator.execute(f"CREATE ROLE {OTHER} LOGIN")
    administrator.execute(f"CREATE DATABASE {OTHER} OWNER {OTHER}")
    migrated = manage("migrate", "--verbosity", "0", **installation(OTHER, tmp_path, owner=OTHER))
    assert migrated.returncode != 0
    assert "memory_request" in migrated.stderr


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("address", ["/{folder}/{name}", "/{name}?host={folder}", "{quoted}/{name}"])
def test_a_url_can_name_the_folder_of_a_socket(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    connection.ensure_connection()
    info = connection.connection.info
    there = address.format(folder=info.host, quoted=quote(info.host, safe=""), name=info.dbname)
    url = f"postgres://{info.user}@{there}"
    monkeypatch.setattr("memoryproject.settings.CONF", conf.load({"DATABASE_URL": url}))
    by_url = DatabaseWrapper(connection.settings_dict | {"EMBEDDED": False} | database_of(""))
    by_url.ensure_connection()
    seen = by_url.connection.info.host, by_url.connection.info.dbname
    by_url.close()
    assert seen == (info.host, info.dbname)
