"""Configuration of gunicorn: `gunicorn -c python:memoryproject.gunicorn_conf memoryproject.asgi`.

Several processes use several cores. `asgi.py` describes how a process handles requests.
"""

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import httptools  # noqa: F401 (the workers share it)
import structlog
import uvloop  # noqa: F401 (likewise)

from memoryproject.process_tree import die_with, set_process_name
from memoryproject.serving import figures_folder

# Set before the settings are read, and only here: other programs that import the application must not pool connections.
os.environ["MEMORY_PROCESS"] = "web"

from gunicorn.arbiter import Arbiter  # type: ignore[import-untyped]
from uvicorn_worker import UvicornWorker

from memoryproject.serving.quiet_server import TICK, QuietServer
from memoryproject.settings import CONF, FIGURES_DIR

os.environ[figures_folder.VARIABLE] = str(FIGURES_DIR)


class WebWorker(UvicornWorker):  # type: ignore[misc]
    """A worker that uses the address and the scheme of the connection itself.

    By default, Uvicorn trusts proxy headers of any local client. Here, only `BEHIND_PROXY` decides whether they count.
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
    """Create the metrics folder, and let an idle server sleep for longer."""
    wait = server.wait_for_signals
    server.wait_for_signals = lambda timeout: wait(TICK)  # a signal, such as a worker's death, ends the wait
    make_figures_folder()


def make_figures_folder() -> None:
    """Create the metrics folder, in the temporary directory if `DATA_DIR` is not writable."""
    try:
        figures_folder.make(FIGURES_DIR)
    except OSError as error:
        instead = Path(tempfile.gettempdir(), f"memory-figures-{os.getuid()}")
        figures_folder.make(instead)
        told = f"DATA_DIR: {FIGURES_DIR} can't be used: {error.strerror}. Requests are counted in {instead}."
        structlog.get_logger(__name__).warning(told)


def post_fork(_server: Any, worker: Any) -> None:
    """Make a worker die with its master, so that none keeps serving with old settings."""
    die_with(worker.ppid)
    set_process_name(f"Web worker {worker.age}")


def post_worker_init(worker: Any) -> None:
    """Stop the server if the data are from another version, or a check of the database fails.

    Only the first worker checks. Under `manage.py run`, no worker checks, because the command itself has checked.

    Later workers don't check, because during a rollout this release keeps serving while the next one migrates.
    """
    from memoryproject.status import checks

    if worker.age > 1 or checks.fits:
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
    from sessions_app.database.deferred_writes import stop_all

    stop_all()
    telemetry.stop()


def on_exit(_server: Any) -> None:
    from memoryproject import telemetry

    telemetry.stop()
    figures_folder.remove()
