"""Making a query: what to look up in memory before a message is answered."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from moments_app.engines.calls.shape import Shape
from moments_app.engines.transcript import Turn, as_data, fenced


@dataclass(frozen=True)
class QueryRequest:
    """Everything an engine gets to say what to look up in memory.

    Args:
        turns: the latest of the conversation, oldest first; their indexes are sequences of the session.
        message: about to be answered.
        prompt: the text of the prompt version in force.
    """

    turns: Sequence[Turn]
    message: str
    prompt: str


class QueryAnswer(BaseModel):
    """What to look up; blank when nothing."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(max_length=1_000)


SHAPE = Shape("recall-query", QueryAnswer, lambda answer: "")


def as_message(request: QueryRequest) -> str:
    """Return the user message of a request for a query: the message, then the turns before it."""
    return "\n".join(
        [
            f"Message about to be answered: {as_data(request.message)}",
            "The conversation before it:",
            fenced(request.turns),
        ]
    )
