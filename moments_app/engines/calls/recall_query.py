"""Write the query with which memory is searched before a message is answered."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from moments_app.engines.calls.shape import Shape
from moments_app.engines.transcript import Turn, as_data, fenced


@dataclass(frozen=True)
class QueryRequest:
    """The engine's input for writing a query.

    Args:
        turns: The latest turns of the conversation, oldest first. Their indexes are sequences of the session.
        message: The message to be answered.
        prompt: The text of the active prompt version.
    """

    turns: Sequence[Turn]
    message: str
    prompt: str


class QueryAnswer(BaseModel):
    """The query. Blank if memory need not be searched."""

    model_config = ConfigDict(extra="forbid")

    query: str = Field(max_length=1_000)


SHAPE = Shape("recall-query", QueryAnswer, lambda answer: "")


def as_message(request: QueryRequest) -> str:
    """Return the user message of a query request: the message, then the previous turns."""
    return "\n".join(
        [
            f"Message about to be answered: {as_data(request.message)}",
            "The conversation before it:",
            fenced(request.turns),
        ]
    )
