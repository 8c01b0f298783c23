"""A ChatGPT data export: `conversations.json`, an array of conversations, each a tree of messages.

Taken is the branch that `current_node` ends, as the person saw it last. What ChatGPT never showed is left out: system
messages it adds, custom instructions, results marked as hidden.
"""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, Field

from sessions_app.imports.import_sessions import Record, Rejected
from sessions_app.imports.records import (
    CannotImport,
    Conversation,
    Fields,
    Owner,
    conversation_records,
    filled,
    point_in_time,
    text_and_parts,
)
from sessions_app.imports.source import Source

NAME = "chatgpt"
LOOKED_FOR = "a JSON array of conversations with mapping (chatgpt), also in the export's zip file"
INSTRUCTIONS = ("user_editable_context", "model_editable_context")
TEXT_FIELDS = ("parts", "text", "result", "content")  # where the kinds of content have their text


class Node(BaseModel):
    """A place in the tree."""

    parent: str | None = None
    message: dict[str, Any] | None = None


class Tree(BaseModel):
    """A conversation."""

    id: str = Field(validation_alias=AliasChoices("conversation_id", "id"))
    title: Any = None
    create_time: float | None = None
    current_node: str
    mapping: dict[str, Node]


class Author(BaseModel):
    """Who speaks; the name is a tool's."""

    role: Literal["system", "user", "assistant", "tool"]
    name: str | None = None


class Metadata(BaseModel):
    """What matters of what is told about a message."""

    is_visually_hidden_from_conversation: bool | None = None
    attachments: list[dict[str, Any]] | None = None


class Message(BaseModel):
    """A message; an assistant's to anybody but `all` calls a tool."""

    id: str
    author: Author
    create_time: float | None = None
    content: dict[str, Any]
    recipient: str | None = None
    weight: float | None = None
    metadata: Metadata | None = None

    def is_shown(self) -> bool:
        """Whether the person saw it, or could have."""
        if self.metadata and self.metadata.is_visually_hidden_from_conversation:
            return False
        if self.author.role in ("system", "tool") and self.weight == 0:
            return False
        return self.content.get("content_type") not in INSTRUCTIONS


def recognises(source: Source) -> bool:
    """Whether its first element is such a conversation."""
    return "mapping" in source.first_names


def read(source: Source, owner: Owner) -> Iterator[Record | Rejected]:
    """The messages of all conversations."""
    return conversation_records(NAME, source.elements(), owner, _opened)


def _opened(value: Any) -> Conversation:
    tree = Tree.model_validate(value)

    def fields_of(node: Node) -> list[Fields]:
        message = Message.model_validate(node.message)
        fields = _fields(message, node.parent)
        if not message.is_shown() or not (fields["content"].strip() or fields["payload"]):
            return []
        seconds = tree.create_time if message.create_time is None else message.create_time
        return [fields | {"external_id": message.id, "created_at": point_in_time(seconds)}]

    return Conversation(tree.id, tree.title, _branch(tree), fields_of)


def _branch(tree: Tree) -> list[Node]:
    """From the root to the current node, without places that have no message.

    Raises:
        CannotImport: there is no such node, or the tree is none.
    """
    branch: list[Node] = []
    seen: set[str] = set()
    name: str | None = tree.current_node
    while name is not None:
        node = tree.mapping.get(name)
        if node is None or name in seen:
            raise CannotImport("Its messages are no tree that leads to current_node.")
        seen.add(name)
        branch.append(node)
        name = node.parent
    return [node for node in reversed(branch) if node.message]


def _fields(message: Message, parent: str | None) -> Fields:
    text, payload = _content(message.content)
    calls = message.author.role == "assistant" and message.recipient not in (None, "all")
    if calls:
        function = {"name": message.recipient, "arguments": text}
        payload["tool_calls"] = [{"id": message.id, "type": "function", "function": function}]
    if message.author.role == "tool":
        payload["tool_call_id"] = parent
    payload["attachments"] = message.metadata.attachments if message.metadata else None
    return {
        "role": message.author.role,
        "content": "" if calls else text,
        "tool_name": (message.author.name or "") if message.author.role == "tool" else "",
        "payload": filled(payload) or None,
    }


def _content(content: dict[str, Any]) -> tuple[str, Fields]:
    """The text, and all else that is told: addresses of pictures, what was quoted, the language of code."""
    name = next((name for name in TEXT_FIELDS if isinstance(content.get(name), str | list)), None)
    text, parts = text_and_parts(content[name]) if name else ("", [])
    details = filled({key: value for key, value in content.items() if key != name})
    if details.keys() == {"content_type"} and text:
        details = {}
    return text, {"parts": parts, "content": details}
