"""Everything on one machine: what `make run` starts, run as a user would."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.conf import settings

from tests.support.folders import data_folder

TIMEOUT = 240  # seconds; a slow machine with other tests beside this may need most of it


class Run:
    """A running `manage.py run`.

    Args:
        folder: its DATA_DIR.
    """

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        # As on a user's machine: what it prints into a file is not unbuffered for it.
        environment = os.environ | {"DATA_DIR": str(folder), "DATABASE_URL": "", "PYTHONUNBUFFERED": ""}
        self.log = folder / "run.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "run", "--port", str(self.port)],
                cwd=settings.BASE_DIR,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not done():
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.1)

    def stop(self) -> str:
        """Interrupt it as Ctrl-C does, and return everything it printed."""
        os.killpg(self.process.pid, signal.SIGINT)
        self.process.wait(TIMEOUT)
        return self.log.read_text()

    def members(self) -> list[str]:
        """Return the commands of its processes that are still running."""
        listed = subprocess.run(["ps", "-o", "args=", "-g", str(self.process.pid)], capture_output=True, text=True)
        return listed.stdout.splitlines()


@pytest.fixture
def folder() -> Iterator[Path]:
    with data_folder() as folder:
        yield folder


@pytest.mark.slow
def test_it_sets_up_shows_the_main_job_serves_and_ends_whole(folder: Path) -> None:
    run = Run(folder)
    run.wait_until(lambda: "Ctrl-C" in run.log.read_text() or run.process.poll() is not None)
    with urllib.request.urlopen(f"http://127.0.0.1:{run.port}/admin/login/") as page:
        assert page.status == 200
    printed = run.stop()
    assert run.process.returncode == 0
    assert run.members() == []
    assert re.search(r"shown this once: operator / \S{16}", printed)
    assert len(re.findall(r"^  \S+-202603\d\d  \(turns \d+–\d+", printed, re.M)) >= 5
    assert "moment_compression" in printed
    context = printed.partition("What a model gets in a new session")[2]
    assert "38 square metres" in context
    assert "11,800 kronor a month" in context
    again = Run(folder)
    again.wait_until(lambda: "Ctrl-C" in again.log.read_text() or again.process.poll() is not None)
    printed = again.stop()
    assert "shown this once" not in printed
    assert "posted 100 messages, 0 of them new" in printed
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{again.port}/healthz")
