"""Reader of API responses of Zep and Graphiti: threads with their messages, and facts, which are edges of a graph.

A fact has two time ranges: when it was true (`valid_at`, `invalid_at`), and when that was known (`created_at`,
`expired_at`).
"""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, Field
from pydantic import ValidationError as ShapeError

from memory_extras.importers.records import SourceConversation, conversation_records, has_item_with, items, statement
from sessions_app.imports.import_sessions import Record, RejectedRecord, Statement
from sessions_app.imports.source import LocatedValue, Owner, Source, reason_of
from sessions_app.text.chat_messages import Fields, without_empty

NAME = "zep"
PAGES = "edges"
DESCRIPTION = "threads with thread_id and messages, or edges with uuid and fact (zep)"
ROLES = {"norole": "user", "function": "tool"}


class Edge(BaseModel):
    fact: str
    created_at: str | None = None
    reference_time: str | None = None
    expired_at: str | None = None
    valid_at: str | None = None
    invalid_at: str | None = None


class ZepMessage(BaseModel):
    """A message. In older versions, `role_type` is the role, and `role` is a name."""

    uuid: str | None = None
    content: str
    role: str | None = None
    role_type: Literal["norole", "system", "assistant", "user", "function", "tool"] | None = None
    name: str | None = None
    created_at: str | None = None
    metadata: dict[str, Any] | None = None


class Thread(BaseModel):
    thread_id: str = Field(validation_alias=AliasChoices("thread_id", "session_id"))
    user_id: str | None = None
    messages: list[Any]


def recognizes(source: Source) -> bool:
    thread, fact = frozenset({"thread_id", "messages"}), frozenset({"uuid", "fact"})
    return has_item_with(source, PAGES, thread, fact)


def read(source: Source, owner: Owner) -> Iterator[Record | Statement | RejectedRecord]:
    """Yield messages and facts. Facts, and threads that don't specify a person, belong to `owner`."""
    for found in items(source, PAGES):
        if isinstance(found, LocatedValue) and isinstance(found.value, dict) and "fact" in found.value:
            yield _fact(found, owner)
        else:
            yield from conversation_records(NAME, iter([found]), _owner(found, owner), _parse_thread)


def _owner(found: LocatedValue | RejectedRecord, owner: Owner) -> Owner:
    value = found.value if isinstance(found, LocatedValue) else None
    named = value.get("user_id") if isinstance(value, dict) else None
    return Owner(named, owner.agent_id) if isinstance(named, str) and named else owner


def _parse_thread(value: Any) -> SourceConversation:
    thread = Thread.model_validate(value)
    return SourceConversation(thread.thread_id, None, list(enumerate(thread.messages, 1)), _fields)


def _fields(numbered: tuple[int, Any]) -> list[Fields]:
    number, raw = numbered
    message = ZepMessage.model_validate(raw)
    role = message.role_type or message.role or "user"
    spoken_by = message.role if message.role_type else message.name
    return [
        {
            "role": ROLES.get(role, role),
            "content": message.content,
            "created_at": message.created_at,
            "external_id": message.uuid or str(number),
            "metadata": (message.metadata or {}) | without_empty({"name": spoken_by}),
        }
    ]


def _fact(found: LocatedValue, owner: Owner) -> Statement | RejectedRecord:
    try:
        edge = Edge.model_validate(found.value)
    except ShapeError as error:
        return RejectedRecord(found.where, reason_of(error))
    return statement(
        found.where,
        NAME,
        owner,
        text=edge.fact,
        said_at=edge.reference_time or edge.created_at,
        valid_from=edge.valid_at,
        valid_until=edge.invalid_at or edge.expired_at,
        ended_at=edge.expired_at or edge.invalid_at,
    )
