"""Refusals: requests that are understood and not carried out.

Whatever refuses raises a subclass of `Refusal`. Each face answers all of them in one place:

| face | place |
| --- | --- |
| REST | `sessions_app.api.errors.RefusalHandler` |
| MCP | a tool's error, in `mcp/server.py` |
| chat endpoint | `chat.errors.answer_refusal` |
| commands | `sessions_app.management.refusing.RefusingCommand` |
| operator's pages | `OperatorView.attempt`; what the database does not do now: `LimitsMiddleware` |
"""

from typing import Any


class Refusal(Exception):
    """A request that is not carried out; the text says why, to whoever asked, and quotes nothing that was said.

    Attributes:
        code: for programs; stable.
        status: as HTTP has it.
        retry_after: seconds until it may be carried out; None where trying again is no use.
    """

    code = "invalid"
    status = 400
    retry_after: int | None = None


class Conflict(Refusal):
    """What is asked for can't be done as things stand."""

    code = "conflict"
    status = 409


def error_data(status: int, code: str, detail: str) -> dict[str, Any]:
    """Return an error as every API error reads: `{"type", "errors": [{"code", "detail", "attr"}]}`."""
    kind = "server_error" if status >= 500 else "client_error"
    return {"type": kind, "errors": [{"code": code, "detail": detail, "attr": None}]}
