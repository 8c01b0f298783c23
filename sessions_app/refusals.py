"""Refusals: requests that are understood and not carried out.

Whatever refuses raises a subclass of `Refusal`, and each face turns any of them into its own words in one place: the
REST interface and MCP by `api.errors.api_exception`, the chat endpoint by `chat.errors.answer_refusal`, commands by
`management.refusing.RefusingCommand`, the operator's pages by `PageAdmin.attempt`.
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
