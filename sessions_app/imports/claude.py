"""A Claude data export: `conversations.json`, an array of conversations with their `chat_messages`.

A message is a list of blocks. Calls of tools and their results stand in one message there and are turns of their own
here. Where messages name their parents, the branch is taken that ends with the newest.
"""

import json
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from sessions_app.imports.import_sessions import Record, Rejected
from sessions_app.imports.records import (
    Conversation,
    Fields,
    Owner,
    conversation_records,
    filled,
    text_and_parts,
    without_data,
)
from sessions_app.imports.source import Source
from sessions_app.shorten import shorten_middle

NAME = "claude"
LOOKED_FOR = "a JSON array of conversations with chat_messages (claude), also in the export's zip file"
ROLES = {"human": "user", "assistant": "assistant"}
PASTED = ("", "paste.txt", None)  # names that a long text gets which a person pasted
ATTACHED_MAX_CHARS = 100_000  # kept of the texts attached to a message, together


class Chat(BaseModel):
    """A conversation."""

    uuid: str
    name: Any = None
    created_at: str | None = None
    current_leaf_message_uuid: str | None = None
    chat_messages: list[dict[str, Any]]


class Block(BaseModel):
    """A part of a message: text, thinking, a call of a tool, its result, or what else there may be."""

    model_config = ConfigDict(extra="allow")

    type: str
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    content: Any = None


class Message(BaseModel):
    """A message; `text` is what older exports have alone."""

    uuid: str
    sender: Literal["human", "assistant"]
    text: str | None = None
    content: list[Block] | None = None
    created_at: str | None = None
    attachments: list[dict[str, Any]] | None = None
    files: list[dict[str, Any]] | None = None


def recognises(source: Source) -> bool:
    """Whether its first element is such a conversation."""
    return "chat_messages" in source.first_names


def read(source: Source, owner: Owner) -> Iterator[Record | Rejected]:
    """The messages of all conversations."""
    return conversation_records(NAME, source.elements(), owner, _opened)


def _opened(value: Any) -> Conversation:
    chat = Chat.model_validate(value)

    def fields_of(raw: dict[str, Any]) -> list[Fields]:
        message = Message.model_validate(raw)
        turns = [turn for turn in _turns(message) if turn["content"].strip() or turn.get("payload")]
        created_at = message.created_at or chat.created_at
        return [
            turn | {"external_id": f"{message.uuid}:{n}" if n else message.uuid, "created_at": created_at}
            for n, turn in enumerate(turns)
        ]

    return Conversation(chat.uuid, chat.name, _branch(chat), fields_of)


def _branch(chat: Chat) -> list[dict[str, Any]]:
    """The messages from the first to the current or else the newest, or all where none has a parent."""
    by_id = {str(message.get("uuid")): message for message in chat.chat_messages}
    if not any(str(message.get("parent_message_uuid")) in by_id for message in chat.chat_messages):
        return chat.chat_messages
    newest = max(reversed(chat.chat_messages), key=lambda message: str(message.get("created_at") or ""))
    last = str(chat.current_leaf_message_uuid)
    message = by_id.pop(last if last in by_id else str(newest.get("uuid")), None)
    branch: list[dict[str, Any]] = []
    while message is not None:
        branch.append(message)
        message = by_id.pop(str(message.get("parent_message_uuid")), None)  # once each: no circle without an end
    return branch[::-1]


def _turns(message: Message) -> list[Fields]:
    """What is said between results of tools, and each result, in order; what is attached goes with the first."""
    turns: list[Fields] = []
    said: list[Block] = []
    for block in message.content or ():
        if block.type == "tool_result":
            turns += [_said(message, said), _result(block)]
            said = []
        else:
            said.append(block)
    turns.append(_said(message, said))
    if not any(turn["content"] or turn["payload"] for turn in turns):
        turns = [{"role": ROLES[message.sender], "content": message.text or "", "payload": None}]
    return [_with_attached(message, turns[0]), *turns[1:]]


def _said(message: Message, blocks: list[Block]) -> Fields:
    texts = [block.text for block in blocks if block.text]
    calls = [_call(block) for block in blocks if block.type == "tool_use"]
    others = [
        without_data(block.model_dump(exclude_none=True))
        for block in blocks
        if block.text is None and block.type != "tool_use"
    ]
    payload = filled({"tool_calls": calls, "parts": others})
    return {"role": ROLES[message.sender], "content": "\n\n".join(texts), "payload": payload or None}


def _call(block: Block) -> Fields:
    """A call of a tool in the shape that OpenAI gave it."""
    function = {"name": block.name, "arguments": json.dumps(block.input, ensure_ascii=False)}
    return filled({"id": block.id}) | {"type": "function", "function": function}


def _result(block: Block) -> Fields:
    if block.content is None or isinstance(block.content, str | list):
        text, parts = text_and_parts(block.content)
    else:
        text, parts = "", [without_data(block.content)]
    payload = filled({"tool_call_id": block.tool_use_id, "parts": parts})
    return {"role": "tool", "content": text, "tool_name": block.name or "", "payload": payload or None}


def _with_attached(message: Message, turn: Fields) -> Fields:
    """The turn with what is attached: what was pasted is said by the person, a file is named with its text."""
    attached = message.attachments or []
    pasted = [item.get("extracted_content") for item in attached if item.get("file_name") in PASTED]
    texts = [turn["content"], *(text for text in pasted if isinstance(text, str))]
    files = [_named(item, len(attached)) for item in attached if item.get("file_name") not in PASTED]
    payload = (turn["payload"] or {}) | filled({"attachments": files, "files": message.files})
    return turn | {"content": "\n\n".join(filter(None, texts)), "payload": payload or None}


def _named(item: dict[str, Any], count: int) -> Fields:
    text = item.get("extracted_content")
    return item | (
        {"extracted_content": shorten_middle(text, ATTACHED_MAX_CHARS // count)} if isinstance(text, str) else {}
    )
