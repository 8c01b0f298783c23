"""Errors, sent to Sentry or whatever speaks its protocol: of what kind, where in the code, in which request or job.

Sentry's library collects much more: variables, bodies, addresses, headers, the words of errors and of log lines, all of
which may quote what somebody said. So each report is made again of what is named here.
"""

from collections.abc import Callable
from logging import LogRecord
from typing import Any

import sentry_sdk
from sentry_sdk.integrations.django import DjangoIntegration
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.integrations.starlette import StarletteIntegration

from memoryproject import __version__
from sessions_app.trace import request_id

FLUSH_SECONDS = 5.0
KEPT = ("event_id", "timestamp", "level", "platform", "release", "environment", "logger", "sdk")
OF_A_FRAME = ("filename", "module", "function", "lineno", "in_app", "pre_context", "context_line", "post_context")
OF_A_LINE = ("error", "where", "process", "status", "kind")
OURS = ("memoryproject", "sessions_app", "moments_app", "memory_extras")


def start(process: str, dsn: str) -> Callable[[], None]:
    """Report errors of this process; return what sends the last ones.

    Args:
        process: its kind, by which reports are tagged.
        dsn: where they go.
    """
    sentry_sdk.init(
        dsn=dsn,
        release=f"memory-platform@{__version__}",
        integrations=[DjangoIntegration(), LoggingIntegration(), StarletteIntegration()],
        auto_enabling_integrations=False,
        include_local_variables=False,
        max_request_body_size="never",
        max_breadcrumbs=0,
        auto_session_tracking=False,
        send_client_reports=False,
        before_send=lambda event, hint: discreet(event, hint.get("log_record"), process),
    )
    return _end


def _end() -> None:
    """Send what waits to be sent, for a few seconds at most."""
    sentry_sdk.get_client().close(timeout=FLUSH_SECONDS)


def discreet(event: Any, line: LogRecord | None, process: str) -> Any:
    """Return a report with what may be known of it.

    Args:
        event: as the library has made it.
        line: of the log that it is about, if it is.
        process: kind of this process.
    """
    report = {name: event[name] for name in KEPT if name in event}
    report["tags"] = {"process": process, "request_id": request_id()}
    if (event.get("transaction_info") or {}).get("source") == "route":
        report["transaction"] = event["transaction"]
    if exceptions := (event.get("exception") or {}).get("values"):
        return report | {"exception": {"values": [_exception(each) for each in exceptions]}}
    return report | _told(line)


def _exception(exception: dict[str, Any]) -> dict[str, Any]:
    """Return an exception without its words."""
    frames = (exception.get("stacktrace") or {}).get("frames") or []
    kept = [{name: frame[name] for name in OF_A_FRAME if name in frame} for frame in frames]
    return {
        "type": exception.get("type"),
        "module": exception.get("module"),
        "mechanism": {"type": "generic", "handled": (exception.get("mechanism") or {}).get("handled", True)},
        "stacktrace": {"frames": kept},
    }


def _told(line: LogRecord | None) -> dict[str, Any]:
    """Return what a log line says: of ours the sentence and some names, of others where in the code it stands."""
    if line is None:
        return {"message": "An error without a sentence."}
    if isinstance(line.msg, dict) and line.name.startswith(OURS):
        names = {name: str(line.msg[name]) for name in OF_A_LINE if name in line.msg}
        return {"message": str(line.msg["event"]), "extra": names, "fingerprint": [line.name, *names.values()]}
    return {"message": f"{line.module}.{line.funcName}, line {line.lineno}"}
