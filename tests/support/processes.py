"""The web server and the worker as separate processes, on the test's database."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import psutil
from django.conf import settings
from django.db import connection

from memoryproject.conf import BASE_DIR
from tests.support.waiting import TIMEOUT, answers, wait_until


def database_url() -> str:
    """Return the URL of the test's database."""
    connection.ensure_connection()
    info = connection.connection.info
    return f"postgresql://{info.user}:{info.password}@/{info.dbname}?host={info.host}&port={info.port}"


def environment(**variables: str) -> dict[str, str]:
    """Return the environment of a process that uses the test's database."""
    own = {"DATABASE_URL": database_url(), "SECRET_KEY": settings.SECRET_KEY, "LOG_LEVEL": "ERROR"}
    return os.environ | own | variables


def manage(*command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of `manage.py` to its end.

    Args:
        command: Its name and arguments.
        variables: Settings, as environment variables.
    """
    return subprocess.run(
        [sys.executable, "manage.py", *command],
        cwd=BASE_DIR,
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


def manage_all(*commands: str, code: str = "", **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run commands, and then code, in one process, because each start of a process takes a second of computing time."""
    lines = [f"call_command(*{command.split()})" for command in commands]
    whole = "\n".join(["from django.core.management import call_command", *lines, code])
    return manage("shell", "-v", "0", "-c", whole, **variables)


class Worker:
    """A `qcluster` that can be killed and restarted.

    Args:
        variables: Settings, as environment variables.
    """

    def __init__(self, **variables: str) -> None:
        # The test's own process queues jobs, and sends no notifications.
        self._environment = environment(**{"JOBS__POLL_SECONDS": "0.2", **variables})
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "manage.py", "qcluster"]
        self._process = subprocess.Popen(command, cwd=BASE_DIR, env=self._environment, start_new_session=True)

    def members(self) -> list[psutil.Process]:
        """Return every process below it."""
        with suppress(psutil.Error):
            return psutil.Process(self._process.pid).children(recursive=True)
        return []

    def kill_member(self, number: int) -> None:
        """Send SIGKILL to one of the processes, and start a new cluster if that ended it."""
        members = self.members()
        if members:
            with suppress(psutil.Error):
                members[number % len(members)].kill()
        if self._process.poll() is not None:
            self.kill_all()
            self._start()

    def kill_all(self) -> None:
        """Send SIGKILL to all its processes at once. Wait until none can write any more."""
        members = self.members()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for member in members:
            with suppress(psutil.Error):
                member.kill()
        self._process.wait()
        psutil.wait_procs(members, timeout=TIMEOUT)

    def restart(self) -> None:
        self.kill_all()
        self._start()


@contextmanager
def worker(**variables: str) -> Iterator[Worker]:
    """Run a worker, which is killed at the end."""
    running = Worker(**variables)
    try:
        yield running
    finally:
        running.kill_all()


@contextmanager
def web(**variables: str) -> Iterator[str]:
    """Run a web server with one process. Yield its base URL."""
    with web_at(free_port(), variables) as url:
        yield url


@contextmanager
def web_at(port: int, variables: Mapping[str, str]) -> Iterator[str]:
    """Run a web server with one process at a port. Yield its base URL."""
    # If there are several, one that is still starting may be slow to stop.
    alone = {"WEB_WORKERS": "1", **variables}
    command = ["-m", "gunicorn", "-c", "python:memoryproject.gunicorn_conf", "--bind", f"127.0.0.1:{port}"]
    process = subprocess.Popen([sys.executable, *command, "memoryproject.asgi"], cwd=BASE_DIR, env=alone)
    try:
        wait_until(lambda: answers(f"http://127.0.0.1:{port}/healthz"))
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(TIMEOUT)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
