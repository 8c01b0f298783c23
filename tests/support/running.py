"""A `manage.py run`, run as a user would."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from memoryproject.conf import BASE_DIR
from tests.support.processes import free_port
from tests.support.waiting import TIMEOUT, answers, wait_until


class Run:
    """A running `manage.py run`.

    Args:
        folder: Its DATA_DIR.
        arguments: The arguments of the command.
        port: The port of the site. None for any free one.
    """

    def __init__(self, folder: Path, *arguments: str, port: int | None = None) -> None:
        self.folder, self.port = folder, port or free_port()
        self.log = (folder if folder.is_dir() else folder.parent) / f"run-{time.monotonic_ns()}.log"
        # Output to a file is buffered, as on a user's machine. One web process suffices.
        own = {"DATA_DIR": str(folder), "DATABASE_URL": "", "PYTHONUNBUFFERED": "", "WEB_WORKERS": "1"}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "run", "--port", str(self.port), *arguments],
                cwd=BASE_DIR,
                env=os.environ | own,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def printed(self) -> str:
        """Return all output so far."""
        return self.log.read_text()

    def serve(self) -> "Run":
        """Wait until it is ready."""
        wait_until(lambda: "Ctrl-C" in self.printed or self.process.poll() is not None)
        assert self.process.poll() is None, self.printed
        return self

    def stop(self) -> str:
        """Interrupt it like Ctrl-C, and return all its output."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.ended()

    def ended(self) -> str:
        """Wait for its end, and return all its output."""
        self.process.wait(TIMEOUT)
        return self.printed

    def members(self) -> list[psutil.Process]:
        """Return every process below it."""
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def answers(self) -> bool:
        """Return whether it is ready."""
        return answers(f"http://127.0.0.1:{self.port}/readyz")


def of_folder(folder: Path) -> list[str]:
    """Return the commands of all processes that name a data directory."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            line = " ".join(process.cmdline())
            if str(folder) in line or process.environ().get("DATA_DIR") == str(folder):
                found.append(line)
    return found
