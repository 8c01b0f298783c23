"""Tracing and error reports, which are sent to other systems if the settings say so.

Both contain names, numbers and places in the code, but no user text or ids of people. The fields are listed explicitly,
so a library upgrade can't add others.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import ModuleType

from memoryproject.extras import packages_of
from memoryproject.settings import CONF

_started = ExitStack()


def start(process: str) -> None:
    """Send the errors and spans of this process until `stop`, or until the interpreter exits.

    Raises:
        ImproperlyConfigured: Packages are missing. The message names the extra.
    """
    if dsn := CONF.sentry_dsn.get_secret_value():
        _started.callback(_errors().start(process, dsn))
    if CONF.otel_exporter_otlp_endpoint:
        _started.callback(_spans().start(process))


def stop() -> None:
    """Send pending errors and spans, and stop. Forks that exit without `atexit` functions must call this."""
    _started.close()


@contextmanager
def exporting(process: str) -> Iterator[None]:
    start(process)
    try:
        yield
    finally:
        stop()


def check() -> None:
    """Raise `ImproperlyConfigured` if a required package is missing, so that every command reports it."""
    if CONF.otel_exporter_otlp_endpoint:
        _spans()
    if CONF.sentry_dsn.get_secret_value():
        _errors()


def _spans() -> ModuleType:
    with packages_of("otel"):
        return import_module("memoryproject.telemetry.spans")


def _errors() -> ModuleType:
    with packages_of("sentry"):
        return import_module("memoryproject.telemetry.errors")
