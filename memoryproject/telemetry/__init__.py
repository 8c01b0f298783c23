"""What leaves the installation about its own work, where settings say so: spans of traces, and errors.

Both tell names, numbers and places in the code. What people said, and who they are, stays: what is sent is chosen field
by field, so that nothing comes along because a library has learned to collect it.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import ModuleType

from memoryproject.settings import CONF
from sessions_app.optional_packages import extra


@contextmanager
def sending(process: str) -> Iterator[None]:
    """Send what happens in this process until the block ends. Threads do that: whoever forks does it before.

    Args:
        process: its kind: web, worker.

    Raises:
        ImproperlyConfigured: the packages are missing; names the extra.
    """
    with ExitStack() as stack:
        for start in (send_errors, send_spans):
            stack.callback(start(process))
        yield


def send_spans(process: str) -> Callable[[], None]:
    """Send the spans of this process, if settings say where to; return what sends the last ones, and ends that."""
    return _spans().start(process) if CONF.otel_exporter_otlp_endpoint else _nothing


def send_errors(process: str) -> Callable[[], None]:
    """Send the errors of this process, if settings say where to; return what sends the last ones, and ends that."""
    dsn = CONF.sentry_dsn.get_secret_value()
    return _errors().start(process, dsn) if dsn else _nothing


def check() -> None:
    """Import what settings need, so that every command says what is missing.

    Raises:
        ImproperlyConfigured: names the extra.
    """
    if CONF.otel_exporter_otlp_endpoint:
        _spans()
    if CONF.sentry_dsn.get_secret_value():
        _errors()


def _spans() -> ModuleType:
    with extra("otel"):
        return import_module("memoryproject.telemetry.spans")


def _errors() -> ModuleType:
    with extra("sentry"):
        return import_module("memoryproject.telemetry.errors")


def _nothing() -> None:
    """End nothing."""
