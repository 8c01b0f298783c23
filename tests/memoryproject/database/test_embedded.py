"""The embedded database: the first process that needs it starts it, also after a kill."""

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from django.core.exceptions import ImproperlyConfigured

from memoryproject.conf import BASE_DIR
from memoryproject.database import embedded
from tests.support.folders import migrated_folder
from tests.support.processes import manage, web
from tests.support.waiting import answers, wait_until

COUNT = "from django.db import connection as c; k = c.cursor(); k.execute('SELECT 40 + 2'); print(k.fetchone()[0])"


@pytest.fixture(scope="module")
def data_dir() -> Iterator[Path]:
    with migrated_folder() as folder:
        yield folder


def query(data_dir: Path) -> str:
    """Run a query in its own process. Set up only Django's connection, because the apps take longer to load."""
    own = {"DJANGO_SETTINGS_MODULE": "memoryproject.settings"} | _environment(data_dir)
    done = subprocess.run(
        [sys.executable, "-c", COUNT], cwd=BASE_DIR, env=os.environ | own, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def kill(data_dir: Path) -> psutil.Process:
    """Kill the postmaster with SIGKILL, which leaves its pid file behind."""
    pid_file = data_dir / "postgres" / "postmaster.pid"
    postmaster = psutil.Process(int(pid_file.read_text().split("\n", 1)[0]))
    postmaster.kill()
    postmaster.wait(10)
    assert pid_file.exists()
    return postmaster


@pytest.mark.slow(seconds=15)
def test_a_command_starts_the_database_and_leaves_it_running(data_dir: Path) -> None:
    done = manage("shell", "--no-imports", "-c", COUNT, **_environment(data_dir))
    assert done.stdout.strip() == "42", done.stderr
    assert embedded.running_socket(data_dir / "postgres")


@pytest.mark.slow
def test_the_path_may_contain_spaces_and_commas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(embedded.MAY_CREATE, "1")
    monkeypatch.setattr(embedded, "START_TIMEOUT", 20)
    data_dir = tmp_path / "Ada's notes, é"
    try:
        embedded.ensure_running(data_dir / "postgres")
        assert query(data_dir) == "42"
    finally:
        embedded.stop(data_dir / "postgres")


@pytest.mark.slow
def test_concurrent_commands_start_the_database_once(data_dir: Path) -> None:
    embedded.stop(data_dir / "postgres")
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(query, [data_dir] * 4)) == {"42"}


@pytest.mark.slow
def test_after_a_kill_the_next_command_restarts_the_database(data_dir: Path) -> None:
    query(data_dir)
    kill(data_dir)
    assert query(data_dir) == "42"


@pytest.mark.slow
def test_a_stale_pid_of_another_program_does_not_prevent_a_start(data_dir: Path) -> None:
    query(data_dir)
    kill(data_dir)
    pid_file = data_dir / "postgres" / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    pid_file.write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")
    assert embedded.running_socket(data_dir / "postgres") is None
    assert query(data_dir) == "42"


@pytest.mark.slow
def test_a_running_web_server_survives_a_kill_of_its_database(data_dir: Path) -> None:
    with web(**_environment(data_dir), LOG_LEVEL="ERROR") as url:
        wait_until(lambda: answers(f"{url}/readyz"))
        for _ in range(3):
            kill(data_dir)
            wait_until(lambda: answers(f"{url}/readyz"))


def _environment(data_dir: Path) -> dict[str, str]:
    return {"DATA_DIR": str(data_dir), "DATABASE_URL": ""}


def test_a_user_without_a_name_is_reported_immediately(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(ImproperlyConfigured, match="the user id 54321 has none"):
        embedded.ensure_running(tmp_path / "postgres")
