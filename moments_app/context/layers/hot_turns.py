"""`hot_turns`: the live window, word for word: all turns where they fit, else the newest that no summary covers.

The newest round is always there. A call of tools and its results must never get apart, so they come whole or not at
all.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from django.conf import settings

from moments_app.context.input import ContextInput
from moments_app.context.item import Item
from moments_app.turns.tool_pairs import tool_calls
from sessions_app.models import Message

STATIC = False


def items(source: ContextInput) -> Sequence[Item]:
    """Return the live turns that were read, oldest first; the older ones with a score of 0."""
    turns = [turn for turn in source.turns if turn.role != Message.Role.SYSTEM]
    if turns and turns[-1].role == Message.Role.USER and turns[-1].content == source.query != "":
        turns = turns[:-1]  # the current message was appended already
    newest = _newest_round(turns)
    hot = turns[max(len(turns) - settings.MEMORY_CONTEXT.hot_turns_limit, 0) :]
    first_hot = min([turn.sequence for turn in hot if turn.sequence > source.covered_to] or [newest])
    return _paired([_scored(_item(source, turn), newest, first_hot) for turn in turns])


def _scored(item: Item, newest: int, first_hot: int) -> Item:
    """Return the turn with its score, and why it is there."""
    sequence = item.source_sequences[0] if item.source_sequences else 0
    if sequence >= newest:
        return replace(item, is_certain=True, why="the newest round")
    return replace(item, why="among the newest turns") if sequence >= first_hot else replace(item, score=0.0)


def _newest_round(turns: Sequence[Message]) -> int:
    """Return the sequence where the newest round begins: the last user turn that was answered, or the last at all."""
    asked = [turn.sequence for turn in turns if turn.role == Message.Role.USER]
    answered = [turn.sequence for turn in turns if turn.role == Message.Role.ASSISTANT]
    begun = [sequence for sequence in asked if answered and sequence < answered[-1]]
    return (begun or asked or answered or [0])[-1]


def _item(source: ContextInput, turn: Message) -> Item:
    payload = turn.payload if isinstance(turn.payload, dict) else {}
    return Item(
        turn.content or ("" if turn.role == Message.Role.ASSISTANT else str(turn.payload or "")),
        ref=f"rem://sessions/{source.session.session_id}/messages/{turn.sequence}",
        source_sequences=(turn.sequence, turn.sequence),
        time=turn.created_at,
        role=turn.role,
        speaker=turn.name,
        tool=turn.tool_name,
        calls=tuple(tool_calls(turn.payload)) if turn.role == Message.Role.ASSISTANT else (),
        call_id=str(payload.get("tool_call_id", "")) if turn.role == Message.Role.TOOL else "",
    )


def _paired(found: Sequence[Item]) -> list[Item]:
    """Join each result to the turn before it; drop the calls of a turn whose results are not all here."""
    kept: list[Item] = []
    wanted: set[object] = set()
    for number, item in enumerate(found):
        if item.role == Message.Role.TOOL:
            known = item.call_id if item.call_id in wanted else ""
            kept.append(replace(item, call_id=known, joined=bool(kept)))
            continue
        results = takewhile(lambda following: following.role == Message.Role.TOOL, found[number + 1 :])
        wanted = {call.get("id") for call in item.calls}
        if not wanted <= {result.call_id for result in results}:
            wanted, item = set(), replace(item, calls=())
        if item.text or item.calls:
            kept.append(item)
    return kept
