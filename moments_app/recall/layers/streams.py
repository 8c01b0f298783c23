"""How a stream stands in a context, whichever layer it is in: facts, then what an operator pinned, the stream's text,
and what waits to be merged.

Each line has its date, not its age: the same memory gives the same text tomorrow.
"""

from collections.abc import Iterator

from moments_app.models import MemoryAtom, MemoryStream
from moments_app.recall.item import Item
from moments_app.recall.scene import Scene


def items_of(scene: Scene, stream_type: str) -> list[Item]:
    """The items of all streams of a type."""
    return [
        item for stream, atoms in scene.streams if stream.stream_type == stream_type for item in _items(stream, atoms)
    ]


def _items(stream: MemoryStream, atoms: list[MemoryAtom]) -> Iterator[Item]:
    name = stream.name
    yield from (_item(atom, name) for atom in atoms if atom.atom_type == MemoryAtom.Type.FACT)
    if stream.pinned_content:
        yield Item(stream.pinned_content, ref=stream.uri, time=stream.last_updated_at, name=name)
    if stream.consolidated_content:
        yield Item(stream.consolidated_content, ref=stream.uri, time=stream.last_updated_at, name=name)
    yield from (_item(atom, name) for atom in atoms if atom.atom_type == MemoryAtom.Type.OBSERVATION)


def _item(atom: MemoryAtom, name: str) -> Item:
    return Item(f"{atom.content} ({atom.formed_at:%Y-%m-%d})", ref=atom.uri, time=atom.formed_at, name=name)
