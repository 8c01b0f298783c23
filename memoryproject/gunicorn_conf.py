"""Configuration of gunicorn: `gunicorn -c python:memoryproject.gunicorn_conf memoryproject.asgi`.

Several processes use several cores. How each handles its requests is described in `asgi.py`.
"""

import os
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from memoryproject.process_tree import call_itself, die_with, locked

# Set before the settings are read, and only here: other programs that import the application must not pool connections.
os.environ["MEMORY_PROCESS"] = "web"


def _folder_of_figures() -> tuple[str, TextIO]:
    """Make a folder, locked as long as this process or one of its workers lives, and remove those of killed ones."""
    for lock in Path(tempfile.gettempdir()).glob("memory-figures-*/lock"):
        with suppress(OSError), lock.open("r+") as file:  # OSError: another user's, or just gone
            if locked(file):
                shutil.rmtree(lock.parent, ignore_errors=True)
    new = Path(tempfile.mkdtemp(prefix="memory-new-"))  # until it is locked: nobody takes it for a killed one's
    held = (new / "lock").open("w")
    locked(held)
    return str(new.rename(new.with_name(new.name.replace("new", "figures")))), held


# Where the processes of this host share what they count; known before anything counts.
_figures, _lock = _folder_of_figures()
os.environ["PROMETHEUS_MULTIPROC_DIR"] = _figures

from gunicorn.arbiter import Arbiter  # type: ignore[import-untyped]
from uvicorn_worker import UvicornWorker

from memoryproject.quiet_server import QuietServer
from memoryproject.settings import CONF


class WebWorker(UvicornWorker):  # type: ignore[misc]
    """Serve each request with the address and scheme of its connection.

    By default, Uvicorn trusts the headers of any local client. Only `BEHIND_PROXY` decides whether proxy headers count.
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
keepalive = 75  # seconds that an idle connection is kept, because clients append message after message
timeout = 60  # seconds without a heartbeat after which a worker is replaced
loglevel = CONF.log_level.lower()
control_socket_disable = True
preload_app = True  # the workers share its memory


def on_starting(_server: Any) -> None:
    """Make the folder again that an earlier master, with the same parent, has removed."""
    Path(_figures).mkdir(exist_ok=True)


def post_fork(_server: Any, worker: Any) -> None:
    """Have a worker die with its master: nobody serves on under old settings."""
    die_with(worker.ppid)
    call_itself(f"Web worker {worker.age}")


def post_worker_init(worker: Any) -> None:
    """Stop the server if the data is of a newer version. Only the first worker checks.

    Later workers don't check: during a rollout, this release keeps serving while the next one migrates.
    """
    if worker.age > 1:
        return
    from django.core.management.base import CommandError
    from django.db import connection
    from gunicorn.errors import AppImportError  # type: ignore[import-untyped]

    from memoryproject.patience import Away, database
    from memoryproject.verification import refuse_newer

    try:
        with suppress(Away), database():
            refuse_newer()
    except CommandError as error:
        raise AppImportError(str(error)) from None
    finally:
        connection.close()


def worker_exit(_server: Any, _worker: Any) -> None:
    """Write what is waiting."""
    from sessions_app.write_behind import stop_all

    stop_all()


def on_exit(_server: Any) -> None:
    """Remove what was counted."""
    shutil.rmtree(_figures, ignore_errors=True)
