"""A site to measure: a migrated embedded database in a temporary folder, and gunicorn on a free port."""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Self, TextIO

from memoryproject.demo import open_url
from tests.support.embeddings import command
from tests.support.fresh_database import FreshDatabase
from tests.support.memory import peak_memory
from tests.support.openai_server import OpenAIServer

ROOT = Path(__file__).resolve().parent.parent
BEGIN_WITH: Path | None = None  # a migrated DATA_DIR to copy, which must not be in use; None to create one
START_TIMEOUT = 240  # seconds
STOP_TIMEOUT = 30

SETTINGS = {
    "DJANGO_SETTINGS_MODULE": "memoryproject.settings",
    "DATABASE_URL": "",  # overrides .env, so that no real database is used
    "DEBUG": "false",
    "HTTPS": "false",
    "LOG_LEVEL": "WARNING",
    "API_RATE": "1000000",
}
# Without a worker, each further append would queue a due build again. There is no embeddings server.
NOTHING_DUE = {
    "EMBEDDING__PROVIDER": "none",
    "MOMENT_BUILDER__MESSAGE_THRESHOLD": "1000000000",
    "MOMENT_BUILDER__TOKEN_THRESHOLD": "1000000000",
    "MEMORY_FORMATION__ENABLED": "false",
}


class Site:
    """A site that exists while its `with` block runs. Its web server starts on first use.

    Args:
        settings: Settings that differ from the defaults, in addition to those that isolate the site.
        folder: The DATA_DIR, which is kept for the next run. None for a temporary one.
    """

    def __init__(self, settings: Mapping[str, str] = NOTHING_DUE, folder: Path | None = None) -> None:
        self._settings = settings
        self._folder = folder

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = self._folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="memory-bench-")))
            os.environ.update({**SETTINGS, **self._settings}, DATA_DIR=str(folder.resolve()), MEMORY_NEW_DATABASE="1")
            stack.callback(_stop_database, folder)
            is_new = not (folder / "postgres").exists()
            if BEGIN_WITH and is_new:
                # Copied with its owner, because PostgreSQL doesn't start on another user's files.
                folder.mkdir(parents=True, exist_ok=True)
                subprocess.run(["cp", "-a", f"{BEGIN_WITH}/.", folder], check=True)
            _prepare_database(is_migrated=bool(BEGIN_WITH and is_new))
            self.fresh = FreshDatabase()
            stack.callback(self.fresh.close)
            self.key = _issue_key()
            self.conninfo = database_conninfo()
            _serve_embeddings(Path(folder), stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @cached_property
    def model(self) -> OpenAIServer:
        """The model behind the web server's chat endpoint."""
        return self._stack.enter_context(OpenAIServer())

    @cached_property
    def port(self) -> int:
        """The port of the web server."""
        return self.serve(CHAT__UPSTREAM_BASE_URL=self.model.base_url)

    def serve(self, **settings: str) -> int:
        """Start a web server like `manage.py run`, with some additional settings. Return its port."""
        port = free_port()
        command = ["-m", "gunicorn", "-c", "python:memoryproject.gunicorn_conf", "--bind", f"127.0.0.1:{port}"]
        command += ["--log-level", "warning", "memoryproject.asgi"]
        wait_until_ready(self._start(command, settings), port)
        return port

    def run(self) -> int:
        """Start `manage.py run`, with a worker. Return the port of its web server."""
        port = free_port()
        command = ["manage.py", "run", "--no-demo", "--port", str(port)]
        wait_until_ready(self._start(command, {}, stdout=sys.stderr), port)
        return port

    @contextmanager
    def working(self, **settings: str) -> Iterator[None]:
        """Run a worker with some additional settings until the block ends."""
        process = self._start(["manage.py", "qcluster"], settings)
        try:
            yield
        finally:
            end(process)

    def _start(
        self, command: list[str], settings: dict[str, str], stdout: TextIO | None = None
    ) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen([sys.executable, *command], cwd=ROOT, env=os.environ | settings, stdout=stdout)
        self._stack.callback(end, process)
        return process


def run_command(*arguments: str) -> tuple[float, int]:
    """Run a management command in its own process.

    Returns:
        The seconds that it took, and its peak resident size in bytes.

    Raises:
        CalledProcessError: The command failed.
    """
    started = time.monotonic()
    peak = peak_memory([sys.executable, "manage.py", *arguments], cwd=ROOT)
    return time.monotonic() - started, peak


def _serve_embeddings(folder: Path, stack: ExitStack) -> None:
    """Start the embeddings server, if the site has one."""
    from django.conf import settings

    if settings.EMBEDDING.is_embedded:
        arguments = command(folder, settings.EMBEDDING.model_folder)
        stack.callback(end, subprocess.Popen([sys.executable, *arguments], cwd=ROOT))


def _prepare_database(*, is_migrated: bool) -> None:
    import django

    django.setup()
    from django.core.management import call_command

    if not is_migrated:
        call_command("migrate", verbosity=0)
    from benchmarks.seed import index_what_is_seeded

    index_what_is_seeded()


def _issue_key() -> str:
    from sessions_app.models import ApiKey

    return ApiKey.objects.issue("benchmark")[1]


def database_conninfo() -> str:
    from django.conf import settings

    from memoryproject.database import embedded

    folder = embedded.ensure_running(settings.EMBEDDED_DATABASE_DIR)
    return f"host={folder} dbname=postgres user=postgres"


def _stop_database(folder: Path) -> None:
    from django.db import connection

    from memoryproject.database import embedded
    from sessions_app.database.deferred import stop_all

    stop_all()  # at exit, it would restart the database
    connection.close()
    embedded.stop(folder.resolve() / "postgres")


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def wait_until_ready(process: "subprocess.Popen[bytes]", port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with open_url(f"http://127.0.0.1:{port}/healthz", timeout=5):
                return
        except OSError:  # not listening yet, or too busy to respond in time
            time.sleep(0.1)
    raise RuntimeError("The web server did not start.")


def end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
