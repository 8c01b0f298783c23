"""`collective` and `conversation`, and the items of a stream for any layer.

The items of a stream are its facts, pinned items, text, and waiting observations.

A shard starts with this person's own statements, which no other person's context includes.

Each line of a text is a separate item, so that a context may end after any line. Duplicate lines are included once, for
example a correction that still waits next to the text in which it was already made. Waiting observations have their
date instead of their age, so that the same memory gives the same text tomorrow.
"""

from collections.abc import Iterator, Sequence
from zoneinfo import ZoneInfo

from moments_app.context.input import ContextInput
from moments_app.context.item import Item
from moments_app.context.layers import Layer, add_layer
from moments_app.engines.statements.dates import plan_in
from moments_app.models import MemoryAtom, MemoryStream


def collective(source: ContextInput) -> Sequence[Item]:
    """Return the lessons and other knowledge that an agent has learned and keeps in its shards, without duplicates.

    It contains what this person taught the agent, and released items that it learned from others. The shards are active
    ones, both the agent's own and those of every agent.
    """
    found = items_of(source, MemoryStream.Type.AGENT)
    return list({(item.name, item.text): item for item in reversed(found)}.values())[::-1]


def conversation(source: ContextInput) -> Sequence[Item]:
    """Return the items of the session's stream, oldest first."""
    return items_of(source, MemoryStream.Type.SESSION)


def items_of(source: ContextInput, stream_type: str) -> list[Item]:
    """Return the items of all streams of a type. Of items with the same words, return the first."""
    of_type = (found for found in source.streams if found[0].stream_type == stream_type)
    items = (item for stream, atoms in of_type for item in _items(stream, atoms, source.user.zone))
    by_words: dict[tuple[str, str], Item] = {}
    for item in items:
        by_words.setdefault((item.name, item.told.strip() or item.text), item)
    return list(by_words.values())


def pinned_items(source: ContextInput, stream_type: str) -> list[Item]:
    """Return the items that an operator pinned to streams of a type."""
    of_type = (stream for stream, _ in source.streams if stream.stream_type == stream_type)
    return [item for stream in of_type for item in _lines(stream, stream.pinned_content)]


def _items(stream: MemoryStream, atoms: list[MemoryAtom], zone: ZoneInfo) -> Iterator[Item]:
    own = [atom for atom in atoms if not atom.is_candidate]
    yield from (fact_item(atom, zone, stream.name) for atom in atoms if atom.is_candidate)
    yield from (fact_item(atom, zone, stream.name) for atom in own if atom.atom_type == MemoryAtom.Type.FACT)
    yield from _lines(stream, stream.pinned_content)
    yield from _lines(stream, stream.consolidated_content)
    yield from (fact_item(atom, zone, stream.name) for atom in own if atom.atom_type == MemoryAtom.Type.OBSERVATION)


def _lines(stream: MemoryStream, text: str) -> Iterator[Item]:
    for line in text.split("\n"):
        if line.strip():
            said = line.strip().removeprefix("- ")  # a context adds its own list marks
            yield Item(said, ref=stream.uri, time=stream.last_updated_at, name=stream.name)


def fact_item(atom: MemoryAtom, zone: ZoneInfo, name: str = "") -> Item:
    """Return the line of a fact or observation, with its day or planned day in the person's time zone."""
    planned = plan_in(atom.content, atom.formed_at, zone) if atom.is_planned else ""
    day = f"{atom.formed_at.astimezone(zone):%Y-%m-%d}"
    return Item(f"{atom.content} ({planned or day})", ref=atom.uri, time=atom.formed_at, name=name)


add_layer(
    Layer(
        "collective",
        collective,
        place=10,
        tag="CollectiveMemory",
        title="Collective memory",
        ceiling=0.10,
        turn=4,
        is_static=True,
    )
)
add_layer(
    Layer(
        "conversation",
        conversation,
        place=50,
        tag="ConversationFacts",
        title="Facts of this conversation",
        ceiling=0.10,
        turn=6,
        is_static=True,
    )
)
