"""Refusals: requests that are understood and not carried out.

Whatever refuses raises a subclass of `Refusal`. Each face answers all of them in one place:

| face | place |
| --- | --- |
| REST | `sessions_app.api.errors.RefusalHandler` |
| MCP | a tool's error, in `mcp/server.py` |
| chat endpoint | `chat.errors.answer_refusal` |
| commands | `sessions_app.management.refusing.RefusingCommand` |
| operator's pages | `OperatorView.attempt` |
"""


class Refusal(Exception):
    """A request that is not carried out; the text says why, to whoever asked, and quotes nothing that was said.

    Attributes:
        code: for programs; stable.
        status: as HTTP has it.
    """

    code = "invalid"
    status = 400


class Conflict(Refusal):
    """What is asked for can't be done as things stand."""

    code = "conflict"
    status = 409
