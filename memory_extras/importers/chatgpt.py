"""Reader of a ChatGPT data export: `conversations.json`, an array of conversations, each a tree of messages.

The reader uses the branch that ends at `current_node`, which the person saw last. It skips messages that ChatGPT never
showed: its own system messages, custom instructions, and results marked as hidden.
"""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, Field

from memory_extras.importers.records import SourceConversation, conversation_records, point_in_time
from sessions_app.imports.import_sessions import Record, RejectedRecord
from sessions_app.imports.source import CannotImport, Owner, Source
from sessions_app.text.chat_messages import Fields, text_and_parts, without_empty

NAME = "chatgpt"
DESCRIPTION = "a JSON array of conversations with mapping (chatgpt), also in the export's zip file"
INSTRUCTIONS = ("user_editable_context", "model_editable_context")
TEXT_FIELDS = ("parts", "text", "result", "content")  # fields with the text in the different kinds of content


class TreeNode(BaseModel):
    parent: str | None = None
    message: dict[str, Any] | None = None


class MessageTree(BaseModel):
    id: str = Field(validation_alias=AliasChoices("conversation_id", "id"))
    title: Any = None
    create_time: float | None = None
    current_node: str
    mapping: dict[str, TreeNode]


class MessageAuthor(BaseModel):
    """The author of a message. Only tools have a name."""

    role: Literal["system", "user", "assistant", "tool"]
    name: str | None = None


class MessageMetadata(BaseModel):
    is_visually_hidden_from_conversation: bool | None = None
    attachments: list[dict[str, Any]] | None = None


class ChatGPTMessage(BaseModel):
    """A message. An assistant's message to any recipient but `all` calls a tool."""

    id: str
    author: MessageAuthor
    create_time: float | None = None
    content: dict[str, Any]
    recipient: str | None = None
    weight: float | None = None
    metadata: MessageMetadata | None = None

    def is_shown(self) -> bool:
        if self.metadata and self.metadata.is_visually_hidden_from_conversation:
            return False
        if self.author.role in ("system", "tool") and self.weight == 0:
            return False
        return self.content.get("content_type") not in INSTRUCTIONS


def recognizes(source: Source) -> bool:
    return "mapping" in source.first_names


def read(source: Source, owner: Owner) -> Iterator[Record | RejectedRecord]:
    return conversation_records(NAME, source.elements(), owner, _parse_conversation)


def _parse_conversation(value: Any) -> SourceConversation:
    tree = MessageTree.model_validate(value)

    def fields_of(node: TreeNode) -> list[Fields]:
        message = ChatGPTMessage.model_validate(node.message)
        if not message.is_shown():
            return []
        seconds = tree.create_time if message.create_time is None else message.create_time
        identity = {"external_id": message.id, "created_at": point_in_time(seconds)}
        return [_fields(message, node.parent) | identity]

    return SourceConversation(tree.id, tree.title, _branch(tree), fields_of)


def _branch(tree: MessageTree) -> list[TreeNode]:
    """Return the nodes with messages on the path from the root to the current node.

    Raise `CannotImport` if the current node is missing, or if the path has a cycle.
    """
    branch: list[TreeNode] = []
    seen: set[str] = set()
    name: str | None = tree.current_node
    while name is not None:
        node = tree.mapping.get(name)
        if node is None or name in seen:
            raise CannotImport("The messages don't form a tree that leads to current_node.")
        seen.add(name)
        branch.append(node)
        name = node.parent
    return [node for node in reversed(branch) if node.message]


def _fields(message: ChatGPTMessage, parent: str | None) -> Fields:
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
        "payload": without_empty(payload) or None,
    }


def _content(content: dict[str, Any]) -> tuple[str, Fields]:
    """Return the text of a message, and its other content: picture URLs, quoted passages, the language of code."""
    name = next((name for name in TEXT_FIELDS if isinstance(content.get(name), str | list)), None)
    text, parts = text_and_parts(content[name]) if name else ("", [])
    details = without_empty({key: value for key, value in content.items() if key != name})
    if details.keys() == {"content_type"} and text:
        details = {}
    return text, {"parts": parts, "content": details}
