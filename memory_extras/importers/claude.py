"""Reader of a Claude data export: `conversations.json`, an array of conversations with their `chat_messages`.

A message is a list of blocks. The export has tool calls and their results in one message. Here, each result becomes a
turn. If messages name their parents, the reader uses the branch that ends with the newest message.
"""

import json
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from memory_extras.importers.records import SourceConversation, conversation_records, is_empty
from sessions_app.imports.import_sessions import Record, RejectedRecord
from sessions_app.imports.source import Owner, Source
from sessions_app.text.chat_messages import Fields, text_and_parts, without_data, without_empty
from sessions_app.text.length import shorten_middle

NAME = "claude"
DESCRIPTION = "a JSON array of conversations with chat_messages (claude), also in the export's zip file"
ROLES = {"human": "user", "assistant": "assistant"}
PASTED = ("", "paste.txt", None)  # file names in the export that stand for pasted text
ATTACHED_MAX_CHARS = 100_000  # maximum characters of all texts attached to a message


class ClaudeConversation(BaseModel):
    uuid: str
    name: Any = None
    created_at: str | None = None
    current_leaf_message_uuid: str | None = None
    chat_messages: list[dict[str, Any]]


class ContentBlock(BaseModel):
    model_config = ConfigDict(extra="allow")

    type: str
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    content: Any = None


class ClaudeMessage(BaseModel):
    """A message. Older exports have only `text`."""

    uuid: str
    sender: Literal["human", "assistant"]
    text: str | None = None
    content: list[ContentBlock] | None = None
    created_at: str | None = None
    attachments: list[dict[str, Any]] | None = None
    files: list[dict[str, Any]] | None = None


def recognizes(source: Source) -> bool:
    return "chat_messages" in source.first_names


def read(source: Source, owner: Owner) -> Iterator[Record | RejectedRecord]:
    return conversation_records(NAME, source.elements(), owner, _parse_conversation)


def _parse_conversation(value: Any) -> SourceConversation:
    chat = ClaudeConversation.model_validate(value)

    def fields_of(raw: dict[str, Any]) -> list[Fields]:
        message = ClaudeMessage.model_validate(raw)
        turns = [turn for turn in _turns(message) if not is_empty(turn)]
        created_at = message.created_at or chat.created_at
        return [
            turn | {"external_id": f"{message.uuid}:{n}" if n else message.uuid, "created_at": created_at}
            for n, turn in enumerate(turns)
        ]

    return SourceConversation(chat.uuid, chat.name, _branch(chat), fields_of)


def _branch(chat: ClaudeConversation) -> list[dict[str, Any]]:
    """Return the messages on the path to the current message, or all messages if none has a parent.

    If the current message is unknown, use the path to the newest one.
    """
    by_id = {str(message.get("uuid")): message for message in chat.chat_messages}
    if not any(str(message.get("parent_message_uuid")) in by_id for message in chat.chat_messages):
        return chat.chat_messages
    newest = max(reversed(chat.chat_messages), key=lambda message: str(message.get("created_at") or ""))
    last = str(chat.current_leaf_message_uuid)
    message = by_id.pop(last if last in by_id else str(newest.get("uuid")), None)
    branch: list[dict[str, Any]] = []
    while message is not None:
        branch.append(message)
        # removed from the dict, so the loop ends even if there is a cycle
        message = by_id.pop(str(message.get("parent_message_uuid")), None)
    return branch[::-1]


def _turns(message: ClaudeMessage) -> list[Fields]:
    """Return the texts and the tool results of a message, in order. Attachments go with the first turn."""
    turns: list[Fields] = []
    spoken: list[ContentBlock] = []
    for block in message.content or ():
        if block.type == "tool_result":
            turns += [_speech(message, spoken), _tool_result(block)]
            spoken = []
        else:
            spoken.append(block)
    turns.append(_speech(message, spoken))
    if not any(turn["content"] or turn["payload"] for turn in turns):
        turns = [{"role": ROLES[message.sender], "content": message.text or "", "payload": None}]
    return [_with_attached(message, turns[0]), *turns[1:]]


def _speech(message: ClaudeMessage, blocks: list[ContentBlock]) -> Fields:
    texts = [block.text for block in blocks if block.text]
    calls = [_tool_call(block) for block in blocks if block.type == "tool_use"]
    others = [
        without_data(block.model_dump(exclude_none=True))
        for block in blocks
        if block.text is None and block.type != "tool_use"
    ]
    payload = without_empty({"tool_calls": calls, "parts": others})
    return {"role": ROLES[message.sender], "content": "\n\n".join(texts), "payload": payload or None}


def _tool_call(block: ContentBlock) -> Fields:
    """Return a tool call in OpenAI's format."""
    function = {"name": block.name, "arguments": json.dumps(block.input, ensure_ascii=False)}
    return without_empty({"id": block.id}) | {"type": "function", "function": function}


def _tool_result(block: ContentBlock) -> Fields:
    if block.content is None or isinstance(block.content, str | list):
        text, parts = text_and_parts(block.content)
    else:
        text, parts = "", [without_data(block.content)]
    payload = without_empty({"tool_call_id": block.tool_use_id, "parts": parts})
    return {"role": "tool", "content": text, "tool_name": block.name or "", "payload": payload or None}


def _with_attached(message: ClaudeMessage, turn: Fields) -> Fields:
    """Return the turn with its attachments. Pasted text becomes part of the content, and files go into the payload."""
    if not message.attachments and not message.files:
        return turn
    attached = message.attachments or []
    pasted = [item.get("extracted_content") for item in attached if item.get("file_name") in PASTED]
    texts = [turn["content"], *(text for text in pasted if isinstance(text, str))]
    files = [_shortened_file(item, len(attached)) for item in attached if item.get("file_name") not in PASTED]
    payload = (turn["payload"] or {}) | without_empty({"attachments": files, "files": message.files})
    return turn | {"content": "\n\n".join(filter(None, texts)), "payload": payload or None}


def _shortened_file(item: dict[str, Any], count: int) -> Fields:
    text = item.get("extracted_content")
    return item | (
        {"extracted_content": shorten_middle(text, ATTACHED_MAX_CHARS // count)} if isinstance(text, str) else {}
    )
