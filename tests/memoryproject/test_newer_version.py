"""An older release refuses to run on data of a newer one, with one sentence."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.test import Client
from pytest_django.fixtures import Settings

from memoryproject.conf import BASE_DIR
from memoryproject.status import checks
from tests.support.newer import newer_version
from tests.support.processes import database_url, environment, free_port, manage
from tests.support.waiting import TIMEOUT

pytestmark = pytest.mark.django_db(transaction=True)

TOLD = "The database belongs to a newer version, with the migration sessions_app.9999_later. Start that version."


@pytest.fixture(autouse=True)
def _newer(transactional_db: None) -> Iterator[None]:
    with newer_version():
        yield


def test_a_web_process_that_starts_on_newer_data_is_not_ready(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "is_schema_current", False)
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["checks"]["migrations"]) == (503, TOLD)


def test_a_web_process_stays_ready_while_the_next_release_migrates(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "is_schema_current", True)
    assert client.get("/readyz").status_code == 200


def test_migrate_does_not_change_newer_data() -> None:
    with pytest.raises(CommandError) as raised:
        call_command("migrate", verbosity=0)
    assert str(raised.value) == TOLD


@pytest.mark.slow
def test_migrations_of_other_apps_of_a_host_project_are_ignored() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE django_migrations SET app = 'shop' WHERE name = '9999_later'")
    call_command("migrate", verbosity=0)


@pytest.mark.slow
def test_run_does_not_start_on_newer_data(settings: Settings, tmp_path: Path) -> None:
    settings.DATA_DIR, settings.DATABASE_IS_EMBEDDED = tmp_path, False
    with pytest.raises(CommandError) as raised:
        call_command("run", port=free_port())
    assert str(raised.value) == TOLD


@pytest.mark.slow
def test_a_web_server_does_not_start_on_newer_data() -> None:
    command = ["-m", "gunicorn", "-c", "python:memoryproject.gunicorn_conf", "--bind", f"127.0.0.1:{free_port()}"]
    ended = subprocess.run(
        [sys.executable, *command, "memoryproject.asgi"],
        cwd=BASE_DIR,
        env=environment(WEB_WORKERS="1"),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert ended.returncode != 0
    assert TOLD in ended.stderr.splitlines()
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_workers_do_not_start_on_newer_data() -> None:
    ended = manage("qcluster", DATABASE_URL=database_url())
    assert ended.returncode == 1
    assert ended.stderr.strip().endswith(TOLD)
