"""A LangGraph checkpointer that uses the item store: `graph.compile(checkpointer=MemoryCheckpointer(memory))`.

The items of a checkpoint share a namespace: the thread, the checkpoint's namespace, and its id in a form that sorts the
newest checkpoint first. The items are the checkpoint and the pending writes, each in parts.
"""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from operator import itemgetter
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    SerializerProtocol,
    get_checkpoint_id,
    get_checkpoint_metadata,
)

from memory_platform.client import Memory

ROOT = ["\U0010ffffcheckpoints"]  # searches of a store leave out labels that start with this character
CHECKPOINT = "checkpoint"
LABEL_MAX = 60  # characters of a name that are stored as they are
PART = 150_000  # maximum characters of data in an item
ITEMS = 50  # maximum items of a request or of a response
NEWEST = 3  # items to read first if only the newest checkpoint is wanted

Item = dict[str, Any]
Serialized = tuple[str, bytes]


class MemoryCheckpointer(BaseCheckpointSaver[int]):
    """Checkpoints of one user's threads, or of the application's.

    Args:
        memory: The user whom the checkpoints belong to. Without a `user_id`, they belong to the application.
        serde: See `BaseCheckpointSaver`.
    """

    def __init__(self, memory: Memory, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        self._memory = memory

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint in the config, by default the newest of the thread."""
        place = {"checkpoint_ns": "", **config["configurable"]}
        return next(self._tuples(_labels(place), first_page=NEWEST), None)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield the checkpoints of a thread or of all threads. In each namespace, the newest is first."""
        wanted = get_checkpoint_id(config) if config else None
        end = get_checkpoint_id(before) if before else None
        left = float("inf") if limit is None else limit
        found = self._tuples(_labels(config["configurable"] if config else {}), first_page=ITEMS)
        while left > 0 and (one := next(found, None)):
            own = one.checkpoint["id"]
            fits = all(one.metadata.get(name) == value for name, value in (filter or {}).items())
            if fits and wanted in (None, own) and (end is None or own < end):
                left -= 1
                yield one

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint with the values of all channels."""
        given = config["configurable"]
        place = {
            "thread_id": given["thread_id"],
            "checkpoint_ns": given.get("checkpoint_ns", ""),
            "checkpoint_id": checkpoint["id"],
        }
        content = {"checkpoint": checkpoint, "metadata": get_checkpoint_metadata(config, metadata)}
        about = {**place, "parent_id": given.get("checkpoint_id")}
        self._store(_parts(_labels(place), CHECKPOINT, self.serde.dumps_typed(content), about))
        return {"configurable": place}

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Store the writes of a task, except those that it has stored before. Errors and interrupts are replaced."""
        labels = _labels({"checkpoint_ns": "", **config["configurable"]})
        parts: dict[int, list[Item]] = {}
        for number, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, number)
            about = {"task_id": task_id, "task_path": task_path, "index": index, "channel": channel}
            key = f"write {index} {_label(task_id)}"
            parts[index] = list(_parts(labels, key, self.serde.dumps_typed(value), about))
        regular = [_address(own[0]) for index, own in parts.items() if index >= 0]
        for some in _batches(regular):
            for known in self._call("items/get", items=some)["items"]:
                del parts[known["value"]["index"]]
        self._store(item for own in parts.values() for item in own)

    def delete_thread(self, thread_id: str) -> None:
        """Delete the checkpoints and the writes of a thread."""
        labels = _labels({"thread_id": thread_id})
        while items := self._call("items/search", namespace=labels, limit=ITEMS)["items"]:
            self._call("items/delete", items=[_address(item) for item in items])

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Call `get_tuple` in a thread."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(self, config: RunnableConfig | None, **asked: Any) -> AsyncIterator[CheckpointTuple]:
        """Read each checkpoint of `list` in a thread."""
        found = self.list(config, **asked)
        while one := await asyncio.to_thread(next, found, None):
            yield one

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Call `put` in a thread."""
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Call `put_writes` in a thread."""
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """Call `delete_thread` in a thread."""
        await asyncio.to_thread(self.delete_thread, thread_id)

    def _tuples(self, labels: Sequence[str], *, first_page: int) -> Iterator[CheckpointTuple]:
        """Yield the checkpoints in a namespace. Skip writes of a checkpoint that isn't stored yet."""
        for _namespace, items in groupby(self._items(labels, first_page), itemgetter("namespace")):
            content = _content(items)
            if CHECKPOINT in content:
                yield self._tuple(*content.pop(CHECKPOINT), content.values())

    def _tuple(self, about: Item, serialized: Serialized, writes: Any) -> CheckpointTuple:
        stored = self.serde.loads_typed(serialized)
        place = {name: about[name] for name in ("thread_id", "checkpoint_ns", "checkpoint_id")}
        parent = about["parent_id"] and {"configurable": {**place, "checkpoint_id": about["parent_id"]}}
        in_order = sorted(writes, key=lambda write: itemgetter("task_path", "task_id", "index")(write[0]))
        pending = [(told["task_id"], told["channel"], self.serde.loads_typed(data)) for told, data in in_order]
        return CheckpointTuple({"configurable": place}, stored["checkpoint"], stored["metadata"], parent, pending)

    def _items(self, labels: Sequence[str], first_page: int) -> Iterator[Item]:
        asked: dict[str, Any] = {"namespace": labels, "limit": first_page}
        has_more = True
        while has_more:
            page = self._call("items/search", **asked)
            yield from page["items"]
            has_more = page["has_more"]
            asked |= {"limit": ITEMS, "after": _address(page["items"][-1])} if has_more else {}

    def _store(self, items: Iterator[Item]) -> None:
        """Store items, the first one last, so readers never see a part of a value that takes several requests."""
        for some in _batches(list(items)[::-1]):
            self._call("items", items=some)

    def _call(self, path: str, **body: Any) -> Any:
        sent = {"user_id": self._memory.user_id, **body}
        return self._memory.client.call("POST", path, json=sent, repeatable=True)


def _labels(place: Mapping[str, Any]) -> list[str]:
    """Return the namespace of a checkpoint, or the prefix of all matching namespaces if the place is incomplete."""
    labels = list(ROOT)
    for name in ("thread_id", "checkpoint_ns"):
        if name not in place:
            return labels
        labels.append(_label(str(place[name])))
    return [*labels, _newest_first(place["checkpoint_id"])] if place.get("checkpoint_id") else labels


def _label(name: str) -> str:
    """Return a label for a name of any length. A label can't be blank or long."""
    return f".{name}" if len(name) <= LABEL_MAX else f"sha256:{sha256(name.encode()).hexdigest()}"


def _newest_first(checkpoint_id: str) -> str:
    """Return a label. The order of these labels is the reverse order of the ids."""
    return bytes(255 - byte for byte in checkpoint_id.encode()).hex() + "g"


def _parts(labels: Sequence[str], key: str, serialized: Serialized, about: Mapping[str, Any]) -> Iterator[Item]:
    """Yield the items that store a serialized value. The first also stores `about`. Searches find none."""
    kind, data = serialized
    text = b64encode(data).decode()
    starts = range(0, len(text), PART) or (0,)
    for number, start in enumerate(starts):
        value: Item = {"data": text[start : start + PART]}
        if not number:
            value |= {**about, "type": kind, "parts": len(starts)}
        yield {"namespace": labels, "key": f"{key} {number:05}", "value": value, "text": ""}


def _content(items: Iterator[Item]) -> dict[str, tuple[Item, Serialized]]:
    """Return the values that these items store, by key, each with its `about`."""
    parts: dict[str, list[Item]] = {}
    for item in items:
        key, number = item["key"].rsplit(" ", 1)
        if int(number) == len(parts.setdefault(key, [])):
            parts[key].append(item["value"])
    found: dict[str, tuple[Item, Serialized]] = {}
    for key, values in parts.items():
        if values:
            text = "".join(value["data"] for value in values[: values[0]["parts"]])
            found[key] = values[0], (values[0]["type"], b64decode(text))
    return found


def _address(item: Item) -> Item:
    return {"namespace": item["namespace"], "key": item["key"]}


def _batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    return (items[start : start + ITEMS] for start in range(0, len(items), ITEMS))
