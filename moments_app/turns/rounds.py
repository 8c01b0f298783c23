"""Rounds of a conversation: a person's message, and the assistant's actions and answer until its turn is over."""

from collections.abc import Iterable

from moments_app.turns.tool_pairs import tool_calls
from sessions_app.models import Message


def ends_round(turn: Message) -> bool:
    """Return whether an assistant's turn ends a round. A tool call doesn't, because its result follows."""
    return turn.role == Message.Role.ASSISTANT and not tool_calls(turn.payload)


def end_of_round(turns: Iterable[Message]) -> int | None:
    """Return the sequence of the last of these turns that ends a round."""
    return max((turn.sequence for turn in turns if ends_round(turn)), default=None)
