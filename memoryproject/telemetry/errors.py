"""Error reports for Sentry or a compatible server: the kind of error, its place in the code, and its request or job.

Sentry's library collects much more data, which may quote users: variables, bodies, addresses, headers, messages of
errors and log lines. So each report is rebuilt from the fields named here.
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
ALLOWED = ("event_id", "timestamp", "level", "platform", "release", "environment", "logger", "sdk")
FRAME_FIELDS = ("filename", "module", "function", "lineno", "in_app", "pre_context", "context_line", "post_context")
LOG_FIELDS = ("error", "where", "process", "status", "kind")
OUR_PACKAGES = ("memoryproject", "sessions_app", "moments_app", "memory_extras")


def start(process: str, dsn: str) -> Callable[[], None]:
    """Report errors of this process, tagged with its kind. Return a function that sends pending reports."""
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
        before_send=lambda event, hint: scrubbed(event, hint.get("log_record"), process),
    )
    return _end


def _end() -> None:
    sentry_sdk.get_client().close(timeout=FLUSH_SECONDS)


def scrubbed(event: Any, line: LogRecord | None, process: str) -> Any:
    """Return a report with only the permitted fields of an event, and of its log record if there is one."""
    report = {name: event[name] for name in ALLOWED if name in event}
    report["tags"] = {"process": process, "request_id": request_id()}
    if (event.get("transaction_info") or {}).get("source") == "route":
        report["transaction"] = event["transaction"]
    if exceptions := (event.get("exception") or {}).get("values"):
        return report | {"exception": {"values": [_exception(each) for each in exceptions]}}
    return report | _log_message(line)


def _exception(exception: dict[str, Any]) -> dict[str, Any]:
    frames = (exception.get("stacktrace") or {}).get("frames") or []
    kept = [{name: frame[name] for name in FRAME_FIELDS if name in frame} for frame in frames]
    return {
        "type": exception.get("type"),
        "module": exception.get("module"),
        "mechanism": {"type": "generic", "handled": (exception.get("mechanism") or {}).get("handled", True)},
        "stacktrace": {"frames": kept},
    }


def _log_message(line: LogRecord | None) -> dict[str, Any]:
    """Return the message and some fields of our own log records. For others, return only the place in the code."""
    if line is None:
        return {"message": "An error without a message."}
    if isinstance(line.msg, dict) and line.name.startswith(OUR_PACKAGES):
        names = {name: str(line.msg[name]) for name in LOG_FIELDS if name in line.msg}
        return {"message": str(line.msg["event"]), "extra": names, "fingerprint": [line.name, *names.values()]}
    return {"message": f"{line.module}.{line.funcName}, line {line.lineno}"}
