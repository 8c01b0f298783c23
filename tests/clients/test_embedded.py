"""The embedded site of the Python client, used from separate processes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memory_platform.client import embedded
from memoryproject.conf import BASE_DIR
from tests.support import blocking_client
from tests.support.first_steps import python_in
from tests.support.folders import migrated_folder
from tests.support.running import of_folder
from tests.support.waiting import TIMEOUT, wait_until

CLIENT = blocking_client.PACKAGE.parents[1]
MEMORY = "from memory_platform.client import CannotStart, Memory\nmemory = Memory('nora', embedded=True)\n"
STARTED = "import os, sys, time\nurl, _key = memory.client._site.address()\n"
CHILD_ENDS = "if not (pid := os.fork()):\n    sys.exit()\nos.waitpid(pid, 0)\n"
PARENT_ENDS = f"""parent = os.getpid()
if os.fork():
    sys.exit()
while os.getppid() == parent:
    time.sleep(0.05)
{STARTED}time.sleep(3)
assert memory.client._site.address()[0] == url
"""
HELD = "print(url, flush=True)\ninput()\nmemory.sessions()\nprint('served')\n"


def _environment(folder: Path, *paths: Path) -> dict[str, str]:
    """Return the environment of a process whose own settings don't fit the site."""
    own = {"DATA_DIR": str(folder), "PYTHONPATH": os.pathsep.join(map(str, paths)), "WEB_WORKERS": "1"}
    databases = ("DATABASE_URL", "WEB_DATABASE_URL", "WORKER_DATABASE_URL")
    foreign = {"DJANGO_SETTINGS_MODULE": "another.settings", "ALLOWED_HOSTS": "memory.example.com", "HTTPS": "true"}
    foreign |= dict.fromkeys(databases, "postgres://nobody@localhost/nothing")
    proxy = {"HTTP_PROXY": "http://127.0.0.1:1", "NO_PROXY": ""}
    return os.environ | own | foreign | proxy


def printed_by(code: str, folder: Path, **variables: str) -> str:
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
def _using(folder: Path, forked: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Run a process that uses the site of a folder and forks, and yield it with the URL.

    The process that continues uses the site again after it reads a line.
    """
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-c", MEMORY + STARTED + forked + HELD],
        env=_environment(folder, BASE_DIR, CLIENT),
        cwd=folder,
        stdin=pipe,
        stdout=pipe,
        text=True,
    )
    with process:
        assert process.stdout
        yield process, process.stdout.readline()


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A migrated folder. The first site creates the key that later ones use. Each test ends its site."""
    with migrated_folder() as folder:
        yield folder


@pytest.mark.slow(seconds=60)
def test_the_code_in_the_docs_remembers_across_processes_which_leave_none_running_and_block_no_event_loop() -> None:
    [code] = [block for block in python_in("clients.md") if "embedded=True" in block]
    asking = """
import asyncio
from memory_platform.client import AsyncMemory

async def main():
    async with AsyncMemory("nora", embedded=True) as memory:
        starting, ticks = asyncio.create_task(memory.context("Where do I restore kilns?")), 0
        while not starting.done():
            await asyncio.sleep(0.05)
            ticks += 1
        print((await starting)["context"], ticks)

asyncio.run(main())
"""
    with migrated_folder() as folder:
        assert "I restore kilns in Turin." in printed_by(code, folder, EMBEDDING__PROVIDER="auto")
        assert of_folder(folder) == []
        printed = printed_by(asking, folder)
        assert "I restore kilns in Turin." in printed
        assert int(printed.split()[-1]) > 10
        assert of_folder(folder) == []
        key, log = folder / "embedded.key", folder / "embedded.log"
        assert [path.stat().st_mode & 0o777 for path in (key, log)] == [0o600, 0o600]


@pytest.mark.slow(seconds=30)
def test_processes_and_their_forks_share_a_site_until_the_last_one_ends_or_is_killed(folder: Path) -> None:
    with _using(folder, PARENT_ENDS) as (first, address), _using(folder, CHILD_ENDS) as (second, same):
        assert address == same
        assert first.communicate("\n")[0] == "served\n"
        assert first.returncode == 0
        assert any("memoryproject run" in command for command in of_folder(folder))
        second.send_signal(signal.SIGKILL)
    wait_until(lambda: of_folder(folder) == [])


@pytest.mark.slow(seconds=30)
def test_a_context_manager_stops_an_unused_site_and_the_next_call_restarts_it_or_one_whose_keeper_was_killed(
    folder: Path,
) -> None:
    code = MEMORY + (
        "import json, os, signal\n"
        "memory.sessions()\n"
        "with Memory('nora', embedded=True) as other:\n"
        "    other.add('I keep bees behind the workshop.')\n"
        "print(memory.context('Where are my bees?')['context'])\n"
        "with open('embedded.site') as site:\n"
        "    os.kill(json.load(site)['keeper'], signal.SIGKILL)\n"
        "print(memory.context('Where are my bees?')['context'])\n"
        "memory.close()\n"
        "with Memory('nora', embedded=True) as memory:\n"
        "    print(memory.context('Where are my bees?')['context'])\n"
    )
    assert printed_by(code, folder).count("I keep bees behind the workshop.") == 3
    wait_until(lambda: of_folder(folder) == [])


# --- a stand-in for the server ---

# Records the time of each request, and each key that it creates. `answers` has the statuses of each path; the last one
# is repeated.
STAND_IN = """
import json, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

answers = json.loads(Path("answers").read_text())

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        with open("asked", "a") as asked:
            asked.write(f"{time.monotonic()}\\n")
        statuses = answers[self.path.partition("?")[0]]
        self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

if sys.argv[1] == "create_api_key":
    with open("created", "a") as created:
        created.write("1")
    print("mem_new")
else:
    HTTPServer(("127.0.0.1", int(sys.argv[-1])), Handler).serve_forever()
"""
TOLD = "try:\n    memory.sessions()\nexcept CannotStart as error:\n    print(error)\nelse:\n    print('served')\n"


def _told_by_a_stand_in(folder: Path, answers: dict[str, list[int]], seconds: float = TIMEOUT) -> str:
    """Call a stand-in for the server, and return what the client reports."""
    package = folder / "server/memoryproject"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(STAND_IN)
    (folder / "answers").write_text(json.dumps(answers))
    limit = f"from memory_platform.client import embedded\nembedded.START_SECONDS = {seconds}\n"
    ran = subprocess.run(
        [sys.executable, "-c", limit + MEMORY + TOLD],
        env=_environment(folder, package.parent, CLIENT),
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    wait_until(lambda: of_folder(folder) == [])
    return ran.stdout


@pytest.mark.slow
def test_a_site_that_does_not_start_in_time_is_stopped(tmp_path: Path) -> None:
    told = _told_by_a_stand_in(tmp_path, {"/healthz": [503]}, seconds=0.5)
    assert told == f"The site did not start within 0.5 s; see {tmp_path / 'embedded.log'}.\n"


@pytest.mark.slow
def test_a_site_that_is_not_ready_is_polled_with_pauses(tmp_path: Path) -> None:
    (tmp_path / "embedded.key").write_text("mem_kept")
    answers = {"/healthz": [*[503] * 10, 200], "/api/v1/usage": [200], "/api/v1/sessions": [200]}
    assert _told_by_a_stand_in(tmp_path, answers) == "served\n"
    first, *_, last = map(float, (tmp_path / "asked").read_text().splitlines()[:11])
    assert last - first > 10 * embedded.LOOK


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kept", "usage", "key"),
    [("mem_kept", 200, "mem_kept"), ("mem_kept", 503, "mem_kept"), ("mem_kept", 401, "mem_new"), ("", 401, "mem_new")],
)
def test_a_key_is_created_only_if_the_stored_one_is_missing_or_rejected(
    tmp_path: Path, kept: str, usage: int, key: str
) -> None:
    (tmp_path / "embedded.key").write_text(kept)
    answers = {"/healthz": [200], "/api/v1/usage": [usage], "/api/v1/sessions": [200]}
    assert _told_by_a_stand_in(tmp_path, answers) == "served\n"
    assert (tmp_path / "embedded.key").read_text() == key
    assert (tmp_path / "created").exists() == (key == "mem_new")


@pytest.mark.slow
def test_a_missing_server_is_reported(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", MEMORY],
        env=_environment(tmp_path, CLIENT),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "CannotStart: embedded=True needs the server, which is not installed." in ran.stderr
