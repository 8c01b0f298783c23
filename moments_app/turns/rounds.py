"""Rounds of a conversation: what a person says, and what the assistant does and says until its turn is over."""

from collections.abc import Iterable

from moments_app.turns.tool_pairs import tool_calls
from sessions_app.models import Message


def ends_round(turn: Message) -> bool:
    """Tell whether an assistant has had its say: a call of tools ends no round, its result is still to come."""
    return turn.role == Message.Role.ASSISTANT and not tool_calls(turn.payload)


def end_of_round(turns: Iterable[Message]) -> int | None:
    """Return the sequence of the last of these turns that ends a round."""
    return max((turn.sequence for turn in turns if ends_round(turn)), default=None)
