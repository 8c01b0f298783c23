"""Processes that are forked from a preloaded one, so they start quickly and share its memory.

The preloaded process has neither threads nor connections. Each fork uses the database login of its kind of process.
"""

import gc
import signal
import sys
from collections.abc import Callable
from functools import partial

from django.conf import settings
from django.db import connections

from memoryproject.conf import HOME
from memoryproject.process_tree import Fork, free_unused_memory
from memoryproject.settings import database_of
from memoryproject.status import watchdog
from memoryproject.telemetry import exporting
from moments_app import engines
from moments_app.jobs import worker
from sessions_app import lexemes


def load_web() -> None:
    from memoryproject import gunicorn_conf, urls  # noqa: F401
    from memoryproject.serving import request_limits  # noqa: F401
    from moments_app.interfaces.chat import endpoint as chat  # noqa: F401
    from moments_app.interfaces.mcp import endpoint as mcp  # noqa: F401

    if settings.EMBEDDING.is_embedded:
        from memoryproject.embeddings import app  # noqa: F401


def load() -> None:
    """Import the code of workers and the watchdog, and prepare to fork."""
    lexemes.load()
    engines.load()
    connections.close_all()
    gc.freeze()  # otherwise, garbage collection in a fork would copy the shared memory pages
    free_unused_memory()


def background(*, stops_database: bool = False) -> list[Fork]:
    """Return the workers and the watchdog.

    Args:
        stops_database: Whether the watchdog stops the embedded database if the parent dies.
    """
    number = settings.JOBS.workers
    watch = partial(_as_worker, partial(watchdog.serve, stops_database=stops_database))
    parent_death_signal = signal.SIGTERM if stops_database else signal.SIGKILL
    return [
        Fork("The watchdog", watch, parent_death_signal=parent_death_signal),
        *(_worker(n, number) for n in range(number)),
    ]


def _worker(number: int, workers: int) -> Fork:
    work = partial(_as_worker, partial(worker.serve, number, workers))
    return Fork(f"Worker {number}", work, exits_when_idle=worker.exits_when_idle(number, workers))


def web_server(host: str, port: int) -> Fork:
    return Fork("The web server", partial(_serve, host, port))


def embeddings_server() -> Fork:
    """Return the embeddings server of this host's data directory. The site also starts without it."""
    return Fork("The embeddings server", _serve_embeddings, is_required=False)


def _serve_embeddings() -> None:
    from memoryproject.embeddings.app import serve

    folder = settings.EMBEDDING.model_folder
    serve("127.0.0.1", 0, HOME / folder if folder else None, settings.DATA_DIR)


def _as_worker(function: Callable[[], None]) -> None:
    """Call a function with a worker's login, error reports and tracing.

    Only a fork may call this, because it starts threads.
    """
    _log_in_as("worker")
    with exporting("worker"):
        function()


def _serve(host: str, port: int) -> None:
    from gunicorn.app.wsgiapp import run  # type: ignore[import-untyped]

    _log_in_as("web")
    configuration = ["-c", "python:memoryproject.gunicorn_conf", "--bind", f"{host}:{port}"]
    sys.argv = ["gunicorn", *configuration, "memoryproject.asgi"]
    run()


def _log_in_as(process: str) -> None:
    settings.PROCESS = process
    settings.DATABASES["default"] = database_of(process)
    connections.settings = connections.configure_settings(settings.DATABASES)
    connections["default"] = connections.create_connection("default")
