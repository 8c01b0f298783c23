"""Refusals: valid requests that can't be carried out.

Each interface converts a `Refusal` to an error message in one place: REST in `RefusalHandler`, MCP in `mcp/server.py`,
the chat endpoint in `answer_refusal`, commands in `RefusingCommand`, and operators' pages in `OperatorView.attempt`
and, for database errors, `LimitsMiddleware`.
"""

from typing import Any


class Refusal(Exception):
    """A rejected request. The message tells the client why, and never quotes user text."""

    code = "invalid"  # a stable code for programs
    status = 400
    retry_after: int | None = None  # seconds after which a retry may succeed; None if a retry won't succeed


class Conflict(Refusal):
    """The request conflicts with the current state."""

    code = "conflict"
    status = 409


def error_data(status: int, code: str, detail: str) -> dict[str, Any]:
    """Return the JSON of an API error: `{"type", "errors": [{"code", "detail", "attr"}]}`."""
    kind = "server_error" if status >= 500 else "client_error"
    return {"type": kind, "errors": [{"code": code, "detail": detail, "attr": None}]}
