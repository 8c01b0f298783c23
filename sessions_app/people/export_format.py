"""The format of an export: a zip of JSON lines that any program can read, with one file for each kind of row.

Each class here describes a line of one file, as `export_user` writes it and `import_user` reads it. Other parts of the
product add files of their own through the signals `user_exporting` and `user_importing`.
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
        """Return the names of the columns in order."""
        return list(cls.model_fields)


class Manifest(Row):
    """The content of `manifest.json`: format, version and time."""

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
    """The profile as it was before a change."""

    summary: str
    interests: list[str]
    preferred_topics: list[str]
    actor: str
    created_at: AwareDatetime


class SessionRow(Row):
    """A conversation with its counters: how far moments, summaries and memories have advanced in it."""

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
    """An event."""

    type: str
    payload: Any
    created_at: AwareDatetime


@dataclass(frozen=True)
class Part:
    """A file of an export.

    Args:
        name: The file's name without its extension.
        about: What the file holds, for the README.
        rows: Returns the rows of a person in order.
    """

    name: str
    about: str
    rows: Callable[[UserProfile], Iterator[dict[str, Any]]]

    @property
    def file(self) -> str:
        return f"{self.name}.jsonl"


def rows_of(queryset: QuerySet[Any], shape: type[Row], **lookups: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table in the shape of a file, with a few in memory at a time.

    Args:
        queryset: Ordered rows of one person.
        shape: The class of a line.
        lookups: Field lookups of the columns that differ from the field of the same name.
    """
    names = shape.names()
    for row in queryset.values_list(*(lookups.get(name, name) for name in names)).iterator(AT_ONCE):
        yield dict(zip(names, row, strict=True))


T = TypeVar("T")


def batched(rows: Iterable[T]) -> Iterator[list[T]]:
    """Yield the rows in batches of `AT_ONCE`."""
    remaining = iter(rows)
    while batch := list(islice(remaining, AT_ONCE)):
        yield batch


def plain(value: Any) -> str:
    """Return the JSON form of a value that JSON has no type for."""
    return value.isoformat() if isinstance(value, datetime) else str(value)
