"""Small files in the formats of ChatGPT, Claude and OpenAI's API."""

import json
import zipfile
from pathlib import Path
from typing import Any

AT = 1_700_000_000.0  # 2023-11-14T22:13:20Z


def node(name: str, parent: str | None, role: str = "user", content: Any = None, **fields: Any) -> dict[str, Any]:
    """Return a node of ChatGPT's tree. A text stands for a plain message, and None for a node without one."""
    if isinstance(content, str):
        content = {"content_type": "text", "parts": [content]}
    author = {"role": role, "name": fields.pop("tool", None), "metadata": {}}
    message = {"id": name, "author": author, "create_time": AT, "content": content, "recipient": "all", "weight": 1.0}
    return {
        "id": name,
        "message": message | {"status": "finished_successfully", "metadata": {}} | fields if content else None,
        "parent": parent,
        "children": [],
    }


def chatgpt(*nodes: dict[str, Any], name: str = "c1", **fields: Any) -> dict[str, Any]:
    """Return a conversation. Its current node is the last one."""
    return {
        "title": "The kiln",
        "create_time": AT,
        "update_time": AT + 60,
        "mapping": {place["id"]: place for place in nodes},
        "moderation_results": [],
        "current_node": nodes[-1]["id"],
        "conversation_id": name,
        "id": name,
    } | fields


def said(uuid: str, sender: str, *blocks: Any, **fields: Any) -> dict[str, Any]:
    """Return a message of Claude's export. A text stands for a text block."""
    content = [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]
    return {
        "uuid": uuid,
        "text": "\n\n".join(block for block in blocks if isinstance(block, str)),
        "content": content,
        "sender": sender,
        "created_at": "2024-05-01T12:00:00.123456Z",
        "updated_at": "2024-05-01T12:00:00.123456Z",
        "attachments": [],
        "files": [],
    } | fields


def claude(*messages: dict[str, Any], uuid: str = "c1", **fields: Any) -> dict[str, Any]:
    """Return a conversation of Claude's export."""
    return {
        "uuid": uuid,
        "name": "The kiln",
        "created_at": "2024-05-01T11:59:00.000000Z",
        "updated_at": "2024-05-01T12:00:00.123456Z",
        "account": {"uuid": "a1"},
        "chat_messages": list(messages),
    } | fields


def as_array(path: Path, *conversations: Any) -> Path:
    path.write_text(json.dumps(conversations), "utf-8")
    return path


def as_lines(path: Path, *values: Any) -> Path:
    """Write one value per line. A text is written unchanged."""
    path.write_text("".join((v if isinstance(v, str) else json.dumps(v)) + "\n" for v in values), "utf-8")
    return path


def as_zip(path: Path, **members: Any) -> Path:
    """Write a zip file. Underscores in the names of members become hyphens."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("user.json", "{}")
        for name, value in members.items():
            archive.writestr(f"{name.replace('_', '-')}.json", json.dumps(value))
    return path
