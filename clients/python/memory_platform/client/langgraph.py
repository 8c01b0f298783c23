"""A store of LangGraph's that is kept by the platform: `graph.compile(store=MemoryStore(memory))`.

An item is a conversation of its own, and each `put` a turn in it: the newest is the item, those before it its history,
and all of it is found by `search`, by words and by meaning, and remembered like anything else that was said. `delete`
needs a key with the `admin` scope. A search without a query, and the list of namespaces, read the names of all
conversations.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote, unquote

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)

from memory_platform.client import Memory
from memory_platform.client.errors import Refused

STORE = "store"  # begins the names of such conversations
TEXTS = ("text", "content", "memory", "data")  # of a value, whichever is a text
NEWEST = 2**53 - 1  # is after every sequence
PAGE = 200
FOUND = 50  # turns, of which some may be of other namespaces

Namespace = tuple[str, ...]


class MemoryStore(BaseStore):
    """See the module's text.

    Args:
        memory: of a person.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do one after the other."""
        return [self._do(op) for op in ops]

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Do the same in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _do(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            return self._get(op.namespace, op.key)
        if isinstance(op, PutOp):
            return self._put(op)
        if isinstance(op, SearchOp):
            return self._search(op)
        assert isinstance(op, ListNamespacesOp)
        return self._namespaces(op)

    # --- one item ---

    def _get(self, namespace: Namespace, key: str) -> Item | None:
        path = f"sessions/{quote(_name(namespace, key), safe='')}/messages"
        asked = {"user_id": self._memory.user_id, "view": "all", "before": NEWEST, "limit": 1}
        try:
            messages = self._memory.client.call("GET", path, params=asked)["messages"]
        except Refused as refused:
            if refused.status == 404:
                return None
            raise
        turns = [message for message in messages if message["kind"] == "turn"]
        return _item(namespace, key, turns[-1]) if turns else None

    def _put(self, op: PutOp) -> None:
        name = _name(op.namespace, op.key)
        if op.value is None:
            return self._delete(name)
        role = "system" if op.index is False else "user"  # what is a system's is not searched
        message = {"role": role, "content": _text(op.value), "metadata": {"value": dict(op.value)}}
        self._memory.add(message, session_id=name, source="langgraph")

    def _delete(self, name: str) -> None:
        try:
            self._memory.delete_session(name)
        except Refused as refused:
            if refused.status != 404:
                raise

    # --- several ---

    def _search(self, op: SearchOp) -> list[SearchItem]:
        found = self._by_query(op) if op.query else self._listed(op.namespace_prefix)
        fitting = [item for item in found if _fits(item.value, op.filter)]
        return fitting[op.offset : op.offset + op.limit]

    def _by_query(self, op: SearchOp) -> Iterator[SearchItem]:
        seen = set()
        found = self._memory.search(str(op.query), kinds=["turn"], match_count=FOUND)
        for result in found["results"]:
            place = _place(result["session_id"] or "", op.namespace_prefix)
            if place and place not in seen:
                seen.add(place)
                yield from self._as_found(*place, score=result["score"])

    def _listed(self, prefix: Namespace) -> Iterator[SearchItem]:
        for place in self._places(prefix):
            yield from self._as_found(*place, score=None)

    def _as_found(self, namespace: Namespace, key: str, *, score: float | None) -> Iterator[SearchItem]:
        item = self._get(namespace, key)
        if item:
            yield SearchItem(namespace, key, item.value, item.created_at, item.updated_at, score)

    def _places(self, prefix: Namespace) -> Iterator[tuple[Namespace, str]]:
        offset, has_more = 0, True
        while has_more:
            page = self._memory.sessions(limit=PAGE, offset=offset)
            for session in page["sessions"]:
                if place := _place(session["session_id"], prefix):
                    yield place
            offset, has_more = offset + PAGE, page["has_more"]

    def _namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        there = {namespace for namespace, _key in self._places(())}
        fitting = {
            one[: op.max_depth] for one in there if all(_matches(one, each) for each in op.match_conditions or ())
        }
        return sorted(fitting)[op.offset : op.offset + op.limit]


def _name(namespace: Namespace, key: str) -> str:
    """Return the name of an item's conversation."""
    return ":".join((STORE, *(quote(part, safe="") for part in (*namespace, key))))


def _place(name: str, prefix: Namespace) -> tuple[Namespace, str] | None:
    """Return namespace and key of a conversation that is an item below a namespace; None for any other."""
    store, *parts = map(unquote, name.split(":"))
    namespace = tuple(parts[:-1])
    return (namespace, parts[-1]) if store == STORE and parts and namespace[: len(prefix)] == prefix else None


def _item(namespace: Namespace, key: str, turn: Mapping[str, Any]) -> Item:
    at = datetime.fromisoformat(turn["created_at"])
    return Item(value=turn["metadata"]["value"], key=key, namespace=namespace, created_at=at, updated_at=at)


def _text(value: Mapping[str, Any]) -> str:
    """Return what an item says, which is searched and remembered."""
    texts = (value[name] for name in TEXTS if isinstance(value.get(name), str))
    return next(texts, None) or json.dumps(value, ensure_ascii=False)


def _fits(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Tell whether a value has the fields of a filter."""
    return all(_compares(value.get(name), condition) for name, condition in (wanted or {}).items())


def _compares(found: Any, condition: Any) -> bool:
    if not (isinstance(condition, Mapping) and condition and all(str(name).startswith("$") for name in condition)):
        return bool(found == condition)
    return all(COMPARISONS[name](found, other) for name, other in condition.items())


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda found, other: found == other,
    "$ne": lambda found, other: found != other,
    "$gt": lambda found, other: found is not None and found > other,
    "$gte": lambda found, other: found is not None and found >= other,
    "$lt": lambda found, other: found is not None and found < other,
    "$lte": lambda found, other: found is not None and found <= other,
}


def _matches(namespace: Namespace, condition: MatchCondition) -> bool:
    path = tuple(condition.path)
    if len(path) > len(namespace):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[-len(path) :]
    return all(wanted in ("*", there) for wanted, there in zip(path, part, strict=True))
