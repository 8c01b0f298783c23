"""The shape of an export: a zip of JSON lines, a file for each kind of row, that any program can read.

The classes here are one line each. They are what `export_user` writes and `import_user` takes; whatever another part
of the product keeps of a person adds files of its own by the signals `user_exporting` and `user_importing`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Literal, TypeVar

from django.db.models import QuerySet
from pydantic import AwareDatetime, BaseModel, ConfigDict, NonNegativeInt, StringConstraints

from sessions_app.models import UserProfile

FORMAT, VERSION = "memory-platform-export", 1
AT_ONCE = 500  # rows read or written at a time


class Row(BaseModel):
    """A line of a file."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def names(cls) -> list[str]:
        """The columns, in their order."""
        return list(cls.model_fields)


class Manifest(Row):
    """What the file is, in `manifest.json`."""

    format: Literal["memory-platform-export"]
    version: Literal[1]
    exported_at: AwareDatetime


class ProfileRow(Row):
    """The line of `profile.jsonl`."""

    user_id: Annotated[str, StringConstraints(min_length=1)]
    summary: str
    interests: list[str]
    preferred_topics: list[str]
    timezone: str
    metadata: dict[str, Any]
    created_at: AwareDatetime
    updated_at: AwareDatetime


class ProfileVersionRow(Row):
    """How the profile was before a change."""

    summary: str
    interests: list[str]
    preferred_topics: list[str]
    actor: str
    created_at: AwareDatetime


class SessionRow(Row):
    """A conversation, with its counters: how far moments, summaries and memories have come in it."""

    session_id: str
    agent_id: str
    source: str
    title: str
    status: Literal["active", "cleared"]
    message_count: NonNegativeInt
    total_tokens: NonNegativeInt
    last_sequence: int
    last_activity_at: AwareDatetime
    last_moment_message_idx: int | None
    built_message_count: NonNegativeInt
    built_total_tokens: NonNegativeInt
    weighted_tokens: float
    last_formation_sequence: int | None
    formed_message_count: NonNegativeInt
    formed_weighted_tokens: float
    summarised_sequence: int | None
    live_from_sequence: int
    live_tokens: NonNegativeInt
    legal_hold: bool
    compact_on_request: bool | None
    metadata: dict[str, Any]
    created_at: AwareDatetime


class MessageRow(Row):
    """A turn or a partition event."""

    session_id: str
    sequence: NonNegativeInt
    kind: Literal["turn", "partition"]
    role: Literal["user", "assistant", "tool", "system"]
    tool_name: str
    content: str
    payload: Any
    tokens: NonNegativeInt
    external_id: str | None
    moment_key: str | None
    retracted_at: AwareDatetime | None
    created_at: AwareDatetime
    metadata: dict[str, Any]


class EventRow(Row):
    """Something that happened."""

    type: str
    payload: Any
    created_at: AwareDatetime


@dataclass(frozen=True)
class Part:
    """A file of an export.

    Args:
        name: of the file, without its ending.
        about: what it holds, for the README.
        rows: those of a person, in order.
    """

    name: str
    about: str
    rows: Callable[[UserProfile], Iterator[dict[str, Any]]]

    @property
    def file(self) -> str:
        return f"{self.name}.jsonl"


def rows_of(queryset: QuerySet[Any], shape: type[Row], **lookups: str) -> Iterator[dict[str, Any]]:
    """The rows of a table in the shape of a file, a few in memory at a time.

    Args:
        queryset: filtered by person, in order.
        shape: of a line.
        lookups: where a column is not the field of that name.
    """
    names = shape.names()
    for row in queryset.values_list(*(lookups.get(name, name) for name in names)).iterator(AT_ONCE):
        yield dict(zip(names, row, strict=True))


T = TypeVar("T")


def batched(rows: Iterable[T]) -> Iterator[list[T]]:
    """Some at a time."""
    waiting = iter(rows)
    while batch := list(islice(waiting, AT_ONCE)):
        yield batch


def plain(value: Any) -> str:
    """How JSON has what it has no type for."""
    return value.isoformat() if isinstance(value, datetime) else str(value)
