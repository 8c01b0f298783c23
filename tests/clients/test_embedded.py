"""The embedded site of the Python client, used by processes as a user's are."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memoryproject.conf import BASE_DIR
from tests.support import blocking_client
from tests.support.first_steps import python_in
from tests.support.folders import data_folder, migrated_folder
from tests.support.running import Run, of_folder
from tests.support.waiting import wait_until

CLIENT = blocking_client.PACKAGE.parents[1]
MEMORY = "from memory_platform.client import CannotStart, Memory\nmemory = Memory('nora', embedded=True)\n"
FORKED = "import os, sys\nif not (pid := os.fork()):\n    sys.exit()\nos.waitpid(pid, 0)\n"
HELD = "print(memory.client._base, flush=True)\ninput()\nmemory.sessions()\n"


def _environment(folder: Path, *paths: Path) -> dict[str, str]:
    """The environment of a process whose own settings don't fit the site."""
    own = {"DATA_DIR": str(folder), "PYTHONPATH": os.pathsep.join(map(str, paths)), "WEB_WORKERS": "1"}
    databases = ("DATABASE_URL", "WEB_DATABASE_URL", "WORKER_DATABASE_URL")
    foreign = {"DJANGO_SETTINGS_MODULE": "another.settings", "ALLOWED_HOSTS": "memory.example.com", "HTTPS": "true"}
    foreign |= dict.fromkeys(databases, "postgres://nobody@localhost/nothing")
    proxy = {"HTTP_PROXY": "http://127.0.0.1:1", "NO_PROXY": ""}
    return os.environ | own | foreign | proxy


def _printed(code: str, folder: Path, **variables: str) -> str:
    """Run code in a process, and return what it prints."""
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=_environment(folder, BASE_DIR, CLIENT) | variables,
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return ran.stdout


@contextmanager
def _using(folder: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A process that uses a folder's site, and the address. It forks one that ends, and uses the site after a line."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-c", MEMORY + FORKED + HELD],
        env=_environment(folder, BASE_DIR, CLIENT),
        cwd=folder,
        stdin=pipe,
        stdout=pipe,
        text=True,
    )
    with process:
        assert process.stdout
        yield process, process.stdout.readline()


@pytest.mark.slow(seconds=60)
def test_the_code_of_the_page_remembers_over_two_processes_and_leaves_none_behind() -> None:
    [code] = [block for block in python_in("clients.md") if "embedded=True" in block]
    asking = MEMORY + "print(memory.context('Where do I restore kilns?')['context'])"
    with data_folder() as folder:
        assert "I restore kilns in Turin." in _printed(code, folder, EMBEDDING__PROVIDER="auto")
        assert of_folder(folder) == []
        assert "I restore kilns in Turin." in _printed(asking, folder)
        assert of_folder(folder) == []
        key, log = folder / "embedded.key", folder / "embedded.log"
        assert [path.stat().st_mode & 0o777 for path in (key, log)] == [0o600, 0o600]


@pytest.mark.slow(seconds=30)
def test_processes_share_a_site_until_the_last_of_them_ends_however_it_does() -> None:
    with migrated_folder() as folder:
        with _using(folder) as (first, address), _using(folder) as (second, same):
            assert address == same
            first.communicate("\n")
            assert first.returncode == 0
            assert any("memoryproject run" in command for command in of_folder(folder))
            second.send_signal(signal.SIGKILL)
        wait_until(lambda: of_folder(folder) == [])


@pytest.mark.slow(seconds=30)
def test_a_context_manager_stops_the_site_unless_it_is_used_and_it_can_be_started_again() -> None:
    code = MEMORY + (
        "with Memory('nora', embedded=True) as other:\n"
        "    other.add('I keep bees behind the workshop.')\n"
        "print(memory.context('Where are my bees?')['context'])\n"
        "memory.close()\n"
        "with Memory('nora', embedded=True) as memory:\n"
        "    print(memory.context('Where are my bees?')['context'])\n"
    )
    with migrated_folder() as folder:
        assert _printed(code, folder).count("I keep bees behind the workshop.") == 2
        assert of_folder(folder) == []


@pytest.mark.slow(seconds=20)
def test_why_it_can_not_start_is_said() -> None:
    code = "try:\n    " + MEMORY.strip().replace("\n", "\n    ") + "\nexcept CannotStart as error:\n    print(error)"
    with migrated_folder() as folder:
        run = Run(folder, "--no-demo").serve()
        assert f"{folder} is in use by process {run.process.pid} since" in _printed(code, folder)
        run.stop()


@pytest.mark.slow
def test_without_the_server_it_says_what_to_install(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", MEMORY],
        env=_environment(tmp_path, CLIENT),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "CannotStart: embedded=True needs the server, which is not installed." in ran.stderr
