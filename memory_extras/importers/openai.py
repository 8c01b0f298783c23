"""Reader of chat messages in the format of OpenAI's API and fine-tuning: one `{"messages": […]}` per line.

A conversation is identified by its `id`, or else by a hash of its messages. A message is identified by its position and
a hash of its content. So importing the same file again, or a longer one, adds no duplicates. Later imports
can add messages to a conversation with an `id`.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict

from memory_extras.importers.records import SourceConversation, conversation_records, point_in_time
from sessions_app.imports.import_sessions import Record, RejectedRecord
from sessions_app.imports.source import Owner, Source
from sessions_app.text.chat_messages import Fields, turn_fields

NAME = "openai"
DESCRIPTION = "JSON lines with messages (openai)"
ID_NAMES = ("id", "conversation_id", "session_id")


class OpenAIConversation(BaseModel):
    model_config = ConfigDict(extra="allow")

    messages: list[Any]
    metadata: Any = None
    title: Any = None
    created: float | None = None  # seconds since 1970, in a stored completion


def recognizes(source: Source) -> bool:
    return "messages" in source.first_names


def read(source: Source, owner: Owner) -> Iterator[Record | RejectedRecord]:
    return conversation_records(NAME, source.lines(), owner, _parse_conversation)


def _parse_conversation(value: Any) -> SourceConversation:
    line = OpenAIConversation.model_validate(value)
    created_at = point_in_time(line.created)
    tools: dict[str, str] = {}  # tool names by call id, because results don't repeat them

    def fields_of(numbered: tuple[int, Any]) -> list[Fields]:
        number, raw = numbered
        identity = {"external_id": f"{number}:{_digest(raw)[:16]}", "created_at": created_at}
        return [turn_fields(raw, tools) | identity]

    return SourceConversation(_session_id(line), line.title, list(enumerate(line.messages)), fields_of)


def _session_id(line: OpenAIConversation) -> str:
    metadata = line.metadata if isinstance(line.metadata, dict) else {}
    for place in (line.model_extra or {}, metadata):
        for name in ID_NAMES:
            if isinstance(place.get(name), str | int) and place[name]:
                return str(place[name])
    return _digest(line.messages)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
