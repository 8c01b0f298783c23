"""Reader of the results of mem0's `get_all`: memories, each a sentence about a person, without the messages.

The platform returns a page or an array, and the library an object with `results`. Exports with a custom schema
(`create_memory_export`) can't be read, because their fields are unknown.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, time
from typing import Any

from pydantic import BaseModel
from pydantic import ValidationError as ShapeError

from memory_extras.importers.records import has_item_with, items, statement
from sessions_app.imports.import_sessions import RejectedRecord, Statement
from sessions_app.imports.source import LocatedValue, Owner, Source, reason_of

NAME = "mem0"
PAGES = "results"
DESCRIPTION = "memories with id and memory, as get_all returns them (mem0)"


class Memory(BaseModel):
    memory: str
    user_id: str | None = None
    created_at: str | None = None
    updated_at: str | None = None
    expiration_date: str | None = None  # a date or a time


def recognizes(source: Source) -> bool:
    return has_item_with(source, PAGES, frozenset({"id", "memory"}))


def read(source: Source, owner: Owner) -> Iterator[Statement | RejectedRecord]:
    """Yield the memories. A memory without a person belongs to `owner`."""
    for found in items(source, PAGES):
        yield found if isinstance(found, RejectedRecord) else _statement(found, owner)


def _statement(found: LocatedValue, owner: Owner) -> Statement | RejectedRecord:
    try:
        memory = Memory.model_validate(found.value)
        expired = _expired(memory.expiration_date)
    except (ShapeError, ValueError) as error:
        return RejectedRecord(found.where, reason_of(error))
    times: dict[str, Any] = {"said_at": memory.updated_at or memory.created_at}
    if expired:
        times |= {"valid_until": expired, "ended_at": expired}
    return statement(found.where, NAME, owner, text=memory.memory, user_id=memory.user_id, **times)


def _expired(text: str | None) -> str | None:
    """Return when a memory expired, or None. Raise `ValueError` if the text is neither a date nor a time."""
    if not text:
        return None
    ends = datetime.fromisoformat(text)
    ends = ends if ends.tzinfo else datetime.combine(ends.date(), time(), UTC)
    return ends.isoformat() if ends <= datetime.now(UTC) else None
