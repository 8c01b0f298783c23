"""A throw-away installation: `manage.py run` with its own data directory and default settings."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, LiteralString, Self
from urllib.parse import urlsplit, urlunsplit

import psutil
import psycopg
from pydantic import Secret, SecretStr

from drill.ledger import Turn, marks_in
from drill.provider import Provider
from memoryproject.conf import BASE_DIR, variables
from memoryproject.database import embedded
from memoryproject.process_tree import PARENT
from memoryproject.settings import CONF

START_SECONDS = 240  # maximum time of a start on a slow machine
REQUEST_SECONDS = 30
LOGINS = ("WEB_DATABASE_URL", "WORKER_DATABASE_URL")
SERVING = "Ctrl-C"  # `run` prints this when the site is ready
ALARMS = ("WARNING", "ERROR", "CRITICAL", "warning", "error", "is being restarted")  # in log lines


class SiteNotReady(Exception):
    """The site did not reach the expected state. The message says which one."""


class Site:
    """An installation that exists while its `with` block runs.

    Args:
        provider: The provider of all its models.
        database_url: The URL of its own empty database. Blank for the embedded one.
        before: Called with the site before it starts, to change its database.
        variables: Settings that differ from the defaults.
    """

    def __init__(
        self,
        provider: Provider,
        database_url: str = "",
        *,
        before: Callable[["Site"], object] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="memory-drill-"))
        self.port = _free_port()
        self.key = ""
        self.is_embedded = not database_url
        self._database_url = database_url
        self._environment = environment(provider, database_url, self.folder) | dict(variables or {})
        self._before = before
        self._run: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            if self._before:
                self._before(self)
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self.is_embedded:
            embedded.stop(self.folder / "postgres")
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- processes ---

    def start(self) -> None:
        """Start it, and wait until it is ready.

        Raises:
            SiteNotReady: It ended, or takes too long.
        """
        command = [sys.executable, "manage.py", "run", "--no-demo", "--port", str(self.port)]
        began = self.log_size
        with self.log.open("ab") as log:
            self._run = subprocess.Popen(  # noqa: S603 (our own program)
                command,
                cwd=BASE_DIR,
                env=self._environment | {PARENT: str(os.getpid())},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        run = self._run
        wait_for("the site to serve", lambda: SERVING in self.log_since(began) or run.poll() is not None, START_SECONDS)
        if run.poll() is not None:
            raise SiteNotReady(f"The site did not start: {_last_line(self.log_since(began))}")
        self.key = self.key or self.manage("create_api_key", "drill", "--scope", "admin").strip().splitlines()[-1]

    def stop(self) -> None:
        """Stop it, by SIGKILL if necessary."""
        if self._run and self._run.poll() is None:
            members = self.members()
            self._run.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._run.wait(60)
            self._run.kill()
            _, alive = psutil.wait_procs(members, timeout=10)
            for member in alive:
                with suppress(psutil.Error):
                    member.kill()

    @property
    def root(self) -> psutil.Process:
        """The root of the process tree."""
        assert self._run is not None  # it was started
        return psutil.Process(self._run.pid)

    @property
    def has_ended(self) -> bool:
        """Whether its root has ended."""
        return self._run is None or self._run.poll() is not None

    def members(self) -> list[psutil.Process]:
        """Return the processes below the root, and those of the embedded database."""
        with suppress(psutil.Error, AssertionError):
            return [*self.root.children(recursive=True), *self.database()]
        return self.database()

    def database(self) -> list[psutil.Process]:
        """Return the processes of the embedded database, the root of these first."""
        with suppress(psutil.Error, OSError, ValueError):
            first = (self.folder / "postgres" / "postmaster.pid").read_text().split("\n", 1)[0]
            process = psutil.Process(int(first))
            return [process, *process.children()]
        return []

    def manage(self, *arguments: str) -> str:
        """Run a command on it, and return the output.

        Raises:
            SiteNotReady: It failed. The message has the last line of the output.
        """
        done = subprocess.run(  # noqa: S603 (our own program)
            [sys.executable, "manage.py", *arguments],
            cwd=BASE_DIR,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SiteNotReady(f"manage.py {arguments[0]} failed: {_last_line(done.stderr or done.stdout)}")
        return done.stdout

    # --- requests and log ---

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        seconds: float = REQUEST_SECONDS,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        """Make one request with the key.

        Raises:
            OSError, HTTPException: There is no response.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        try:
            data = None if body is None else json.dumps(body).encode()
            own = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
            connection.request(method, path, data, own | dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def status(self, method: str, path: str, body: Any = None, *, seconds: float = REQUEST_SECONDS) -> int:
        """Make one request and return its status, or 0 without a response."""
        try:
            return self.request(method, path, body, seconds=seconds)[0]
        except (OSError, http.client.HTTPException):
            return 0

    @property
    def log(self) -> Path:
        """The file with the output of all its processes."""
        return self.folder / "run.log"

    @property
    def log_size(self) -> int:
        """The current size of the log."""
        return self.log.stat().st_size if self.log.exists() else 0

    def log_since(self, size: int) -> str:
        """Return the log after its first bytes."""
        with self.log.open("rb") as file:
            file.seek(size)
            return file.read().decode(errors="replace")

    # --- database ---

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Open a direct connection to its database.

        Raises:
            psycopg.OperationalError: The database can't be reached.
        """
        if not self.is_embedded:
            return psycopg.connect(self._database_url, autocommit=True, connect_timeout=5)
        folder = embedded.running_socket(self.folder / "postgres") or "/nonexistent"
        return psycopg.connect(f"host={folder} dbname=postgres user=postgres", autocommit=True, connect_timeout=5)

    def rows(self, statement: LiteralString, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query. Retry while the database is down.

        Raises:
            SiteNotReady: The database stays down.
        """
        found: list[tuple[Any, ...]] = []

        def ask() -> bool:
            with suppress(psycopg.OperationalError), self.connect() as connection:
                found[:] = connection.execute(statement, values).fetchall()
                return True
            return False

        wait_for("the database to answer", ask, START_SECONDS)
        return found

    def number(self, statement: LiteralString, *values: Any) -> int:
        """Return the single number that a query returns."""
        [[number]] = self.rows(statement, *values)
        return int(number)

    def turns(self) -> list[Turn]:
        """Return the turns with a mark in the transcript, including duplicates."""
        found = self.rows("SELECT role, content FROM sessions_app_message WHERE kind = 'turn' AND content ~ 'mark'")
        return [(role, mark) for role, content in found for mark in marks_in(content)]


def found_by_search(site: Site, person: str, query: str, text: str) -> None:
    """Search a person's memory for a message.

    Raises:
        SiteNotReady: It isn't found.
    """
    status, answer = site.request("POST", "/api/v1/memory/search", {"user_id": person, "query": query})
    if status != 200 or text not in answer.decode():
        raise SiteNotReady(f"A search did not find the message (status {status}).")


def environment(provider: Provider, database_url: str, folder: Path) -> dict[str, str]:
    """Return the environment of a throw-away installation: default settings, and the test server for all models."""
    defaults = {name: _as_text(field.default) for name, _, field in variables(type(CONF)) if name in os.environ}
    models = {
        f"{group}__{name}": value
        for group, names in (("ENGINE", ""), ("EMBEDDING", ""), ("CHAT", "UPSTREAM_"))
        for name, value in ((f"{names}BASE_URL", provider.base_url), (f"{names}API_KEY", "drill"))
    }
    own = {"DATABASE_URL": database_url, "DATA_DIR": str(folder), embedded.MAY_CREATE: "1"}
    return os.environ | defaults | models | _logins(database_url) | own


def _logins(database_url: str) -> dict[str, str]:
    """Return this environment's logins for a database on the same server. Empty for the embedded one."""
    name = urlsplit(database_url).path
    logins = {login: os.environ.get(login, "") for login in LOGINS if database_url}
    return {login: urlunsplit(urlsplit(url)._replace(path=name)) for login, url in logins.items() if url}


def _as_text(value: Any) -> str:
    """Format a default for an environment variable, which overrides this environment and .env."""
    if isinstance(value, SecretStr | Secret):
        value = value.get_secret_value()
    if isinstance(value, list):
        return ",".join(value)
    return json.dumps(value) if isinstance(value, dict | bool) else str(value)


def wait_for(what: str, done: Callable[[], bool], seconds: float, *, pause: float = 0.1) -> float:
    """Wait until a condition is true, and return the seconds that it took.

    Raises:
        SiteNotReady: It is not true in time.
    """
    began = time.monotonic()
    while not done():
        if time.monotonic() - began > seconds:
            raise SiteNotReady(f"Waited {seconds:.0f} s for {what}.")
        time.sleep(pause)
    return time.monotonic() - began


def kill(process: psutil.Process) -> None:
    """Send SIGKILL, if the process still exists."""
    with suppress(psutil.Error):
        process.send_signal(signal.SIGKILL)


def _last_line(printed: str) -> str:
    return (printed.strip().splitlines() or ["no output"])[-1]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
