"""A LangGraph store that uses the platform's item store: `graph.compile(store=MemoryStore(memory))`."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    get_text_at_path,
    tokenize_path,
)

from memory_platform.client import Memory

ITEMS = 100  # maximum items of a request
TEXT_MAX = 50_000  # maximum characters of an item's text
PAGE = 200  # maximum items or namespaces of a response

Address = tuple[tuple[str, ...], str]


class MemoryStore(BaseStore):
    """Items of one user, or of the application.

    Args:
        memory: The user whose items the store contains. Without a `user_id`, the store contains items of the
            application, which belong to no user.
        user_label: The position of the label that is the `user_id` in each namespace: 1 for `("memories", user_id)`.
            The items then belong to this user.
        ttl: The default time to live, and whether reads restart it. Expired items are never returned.
    """

    supports_ttl = True

    def __init__(self, memory: Memory, *, user_label: int | None = None, ttl: TTLConfig | None = None) -> None:
        self._memory, self._user_label, self.ttl_config = memory, user_label, ttl

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations, first reads and then puts. Of several puts at an address, the last one counts."""
        ops = list(ops)
        gets = [op for op in ops if isinstance(op, GetOp)]
        found = {(item.namespace, item.key): item for item in self._items_at(gets)}
        results: list[Result] = []
        puts: dict[Address, PutOp] = {}
        for op in ops:
            result: Result = None
            if isinstance(op, GetOp):
                result = found.get((op.namespace, op.key))
            elif isinstance(op, SearchOp):
                result = self._search(op)
            elif isinstance(op, ListNamespacesOp):
                result = self._namespaces(op)
            else:
                assert isinstance(op, PutOp)
                puts[op.namespace, op.key] = op
            results.append(result)
        self._put(list(puts.values()))
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _put(self, ops: Sequence[PutOp]) -> None:
        self._send_in_parts("items/delete", [_address(op.namespace, op.key) for op in ops if op.value is None])
        self._send_in_parts("items", [_item(op) for op in ops if op.value is not None])

    def _items_at(self, ops: Sequence[GetOp]) -> Iterator[Item]:
        refreshed: dict[Address, bool] = {}
        for op in ops:
            address = op.namespace, op.key
            refreshed[address] = refreshed.get(address, False) or op.refresh_ttl
        for refresh_ttl in (True, False):
            wanted = [_address(*address) for address, is_refreshed in refreshed.items() if is_refreshed is refresh_ttl]
            for answer in self._send_in_parts("items/get", wanted, refresh_ttl=refresh_ttl):
                yield from (Item(**_fields(item)) for item in answer["items"])

    def _search(self, op: SearchOp) -> list[SearchItem]:
        asked = {"namespace": op.namespace_prefix, "query": op.query or None, "filter": op.filter or None}
        asked["refresh_ttl"] = op.refresh_ttl
        pages = self._pages("items/search", "items", asked, op, user_id=self._user_of(op.namespace_prefix))
        return [SearchItem(**_fields(item), score=item["score"]) for item in pages]

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        conditions = op.match_conditions or ()
        paths = {condition.match_type: list(condition.path) for condition in conditions}
        if len(paths) < len(conditions):
            raise ValueError("match_conditions: give at most one prefix and one suffix.")
        asked = {"prefix": paths.get("prefix"), "suffix": paths.get("suffix"), "max_depth": op.max_depth}
        user_id = self._user_of(tuple(paths.get("prefix", ())))
        return list(map(tuple, self._pages("items/namespaces", "namespaces", asked, op, user_id=user_id)))

    def _pages(
        self,
        path: str,
        things: str,
        asked: Mapping[str, Any],
        op: SearchOp | ListNamespacesOp,
        *,
        user_id: str | None,
    ) -> list[Any]:
        """Return the results of an operation, read in as few pages as possible."""
        found: list[Any] = []
        has_more = True
        while has_more and len(found) < op.limit:
            page = {"limit": min(PAGE, op.limit - len(found)), "offset": op.offset + len(found)}
            answer = self._call(path, {**asked, **page, "user_id": user_id})
            found += answer[things]
            has_more = answer["has_more"]
        return found

    def _send_in_parts(self, path: str, items: Sequence[Mapping[str, Any]], **asked: Any) -> list[Any]:
        """Send items in requests of at most `ITEMS`, grouped by user. Return the results."""
        by_user: defaultdict[str | None, list[Mapping[str, Any]]] = defaultdict(list)
        for item in items:
            by_user[self._user_of(item["namespace"])].append(item)
        return [
            self._call(path, {"user_id": user_id, "items": own[start : start + ITEMS], **asked})
            for user_id, own in by_user.items()
            for start in range(0, len(own), ITEMS)
        ]

    def _call(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._memory.client.call("POST", path, json=body, repeatable=True)

    def _user_of(self, namespace: Sequence[str]) -> str | None:
        """Return the `user_id` of the items in a namespace, or None for items of no user."""
        at = self._user_label
        return namespace[at] if at is not None and at < len(namespace) else self._memory.user_id


def _address(namespace: tuple[str, ...], key: str) -> dict[str, Any]:
    return {"namespace": namespace, "key": key}


def _item(op: PutOp) -> dict[str, Any]:
    """Return the item that an operation stores. Its `index` lists the searchable fields."""
    item = {**_address(op.namespace, op.key), "value": op.value, "ttl": op.ttl}
    if op.index is None:
        return item
    texts = [text for path in op.index or () for text in get_text_at_path(op.value, tokenize_path(path))]
    return {**item, "text": "\n".join(texts)[:TEXT_MAX]}


def _fields(item: Mapping[str, Any]) -> dict[str, Any]:
    """Convert an item of a response to the arguments of an `Item`."""
    times = {name: datetime.fromisoformat(item[name]) for name in ("created_at", "updated_at")}
    return {"namespace": tuple(item["namespace"]), "key": item["key"], "value": item["value"], **times}
