"""Refusals: valid requests that can't be carried out.

All of them are subclasses of `Refusal`. Each interface handles them in one place:

| interface | place |
| --- | --- |
| REST | `sessions_app.api.errors.RefusalHandler` |
| MCP | a tool's error, in `mcp/server.py` |
| chat endpoint | `chat.errors.answer_refusal` |
| commands | `sessions_app.management.base.RefusingCommand` |
| operators' pages | `OperatorView.attempt`, and `LimitsMiddleware` for database errors |
"""

from typing import Any


class Refusal(Exception):
    """A rejected request. The message tells the client why, and never quotes user text.

    Attributes:
        code: A stable code for programs.
        retry_after: Seconds after which a retry may succeed. None if a retry won't succeed.
    """

    code = "invalid"
    status = 400
    retry_after: int | None = None


class Conflict(Refusal):
    """The request conflicts with the current state."""

    code = "conflict"
    status = 409


def error_data(status: int, code: str, detail: str) -> dict[str, Any]:
    """Return the JSON of an API error: `{"type", "errors": [{"code", "detail", "attr"}]}`."""
    kind = "server_error" if status >= 500 else "client_error"
    return {"type": kind, "errors": [{"code": code, "detail": detail, "attr": None}]}
