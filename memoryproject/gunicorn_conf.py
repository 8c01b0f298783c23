"""Configuration of gunicorn: `gunicorn -c python:memoryproject.gunicorn_conf memoryproject.asgi`.

Several processes use several cores. `asgi.py` describes how a process handles requests.
"""

import fcntl
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import httptools  # noqa: F401 (the workers share it)
import structlog
import uvloop  # noqa: F401 (likewise)

from memoryproject.process_tree import die_with, set_process_name, try_lock

# This must be set before the settings are read. It is set only here, because other programs that import the application
# must not pool connections.
os.environ["MEMORY_PROCESS"] = "web"

from gunicorn.arbiter import Arbiter  # type: ignore[import-untyped]
from uvicorn_worker import UvicornWorker

from memoryproject.serving.quiet_server import TICK, QuietServer
from memoryproject.settings import CONF, FIGURES_DIR, FIGURES_VARIABLE

os.environ[FIGURES_VARIABLE] = str(FIGURES_DIR)


class WebWorker(UvicornWorker):  # type: ignore[misc]
    """A worker that doesn't process proxy headers, because `BEHIND_PROXY` controls their use.

    By default, Uvicorn trusts the proxy headers of any local client.
    """

    CONFIG_KWARGS = UvicornWorker.CONFIG_KWARGS | {"proxy_headers": False}

    async def _serve(self) -> None:
        self.config.app = self.wsgi
        server = QuietServer(self.config)
        self._install_sigquit_handler()
        await server.serve(self.sockets)
        if not server.started:
            sys.exit(Arbiter.WORKER_BOOT_ERROR)


worker_class = WebWorker
workers = CONF.web_workers
keepalive = 75  # seconds, because clients append message after message on one connection
timeout = 60  # seconds without a heartbeat after which a worker is replaced
loglevel = CONF.log_level.lower()
control_socket_disable = True
preload_app = True  # the workers share the memory of the loaded application
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (the server makes files without names in it)
worker_tmp_dir = str(_SHARED_MEMORY) if _SHARED_MEMORY.is_dir() else None  # heartbeats must not wait for a slow disk


def on_starting(server: Any) -> None:
    """Create the metrics folder, and let an idle master process sleep longer."""
    wait = server.wait_for_signals
    server.wait_for_signals = lambda timeout: wait(TICK)  # a signal, such as a worker's death, ends the wait
    make_figures_folder()


def post_fork(_server: Any, worker: Any) -> None:
    """Make a worker die with its master, so that no worker keeps serving with old settings."""
    die_with(worker.ppid)
    set_process_name(f"Web worker {worker.age}")


def post_worker_init(worker: Any) -> None:
    """Stop the server if the data are from another version, or a check of the database fails.

    Only the first worker checks, because during a rollout this release keeps serving while the next one migrates.
    `manage.py run` performs these checks itself.
    """
    from memoryproject.status import checks

    if worker.age > 1 or checks.is_schema_current:
        return
    from django.core.management.base import CommandError
    from django.db import connection
    from gunicorn.errors import AppImportError  # type: ignore[import-untyped]

    from memoryproject.database.timeouts import DatabaseUnavailable, database
    from memoryproject.database.verification import refuse_failed_checks, refuse_other_versions

    try:
        with suppress(DatabaseUnavailable), database():
            refuse_other_versions()
            refuse_failed_checks()
    except CommandError as error:
        raise AppImportError(str(error)) from None
    finally:
        connection.close()


def worker_exit(_server: Any, _worker: Any) -> None:
    from memoryproject import telemetry
    from sessions_app.database.deferred import stop_all

    stop_all()
    telemetry.stop()


def on_exit(_server: Any) -> None:
    from memoryproject import telemetry

    telemetry.stop()
    shutil.rmtree(os.environ[FIGURES_VARIABLE], ignore_errors=True)


# --- the folder in which the processes of this server share their metrics (prometheus_client's multiprocess mode) ---

LOCK = "lock"
_lock_file: TextIO | None = None  # locked until this process and all its forks have ended


def make_figures_folder() -> None:
    """Create the metrics folder, in the temporary directory if `DATA_DIR` is not writable."""
    try:
        _make_figures_folder(FIGURES_DIR)
    except OSError as error:
        instead = Path(tempfile.gettempdir(), f"memory-figures-{os.getuid()}")
        _make_figures_folder(instead)
        message = f"DATA_DIR: {FIGURES_DIR} can't be used: {error.strerror}. Requests are counted in {instead}."
        structlog.get_logger(__name__).warning(message)


def _make_figures_folder(parent: Path) -> None:
    """Create a folder for this server, and remove those of servers that are no longer running."""
    global _lock_file
    parent.mkdir(parents=True, exist_ok=True)
    with (parent / LOCK).open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # otherwise, another server could remove a folder before it is locked
        for lock in parent.glob(f"*/{LOCK}"):
            with suppress(FileNotFoundError), lock.open("r+") as file:
                if try_lock(file):
                    shutil.rmtree(lock.parent, ignore_errors=True)
        folder = tempfile.mkdtemp(dir=parent)
        _lock_file = Path(folder, LOCK).open("w")  # noqa: SIM115
        try_lock(_lock_file)
    os.environ[FIGURES_VARIABLE] = folder
