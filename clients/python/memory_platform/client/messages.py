"""Messages in the format of the platform's API."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import uuid4

from memory_platform.client.answers import Appended, Context

BATCH = 500  # maximum messages per request
POLICY = "policy"
STANDING = (POLICY, "collective", "user")  # layers of a context that don't depend on a conversation or a query
PARTS_MAX_CHARS = 190_000  # maximum length of a message's pictures and files as JSON; the platform rejects longer ones

Message = Mapping[str, Any]
Said = str | Message | Iterable[Message]


def prepared(said: Said) -> list[dict[str, Any]]:
    """Return messages with external ids, so a retried request adds no duplicates.

    Args:
        said: The user's text, a message (`role`, `content`, …), or several messages.
    """
    if isinstance(said, str):
        said = {"role": "user", "content": said}
    several = [said] if isinstance(said, Mapping) else said
    return [_prepared(message) for message in several]


def _prepared(message: Message) -> dict[str, Any]:
    made = {"external_id": uuid4().hex} | {name: value for name, value in message.items() if value is not None}
    if isinstance(made.get("created_at"), datetime):
        made["created_at"] = made["created_at"].isoformat()
    return made


def memory_in(context: Context) -> str:
    """Return the text of a context, or a blank text if the platform knows nothing about the person."""
    is_known = any(layer["items"] for layer in context["layers"] if layer["name"] != POLICY)
    return str(context["context"]) if is_known else ""


def parts_in(content: Any) -> list[dict[str, Any]]:
    """Return the pictures and files of a message's content. Leave out those that can't be stored."""
    parts: list[dict[str, Any]] = []
    for part in [] if isinstance(content, str) else content:
        is_text = not isinstance(part, Mapping) or isinstance(part.get("text", part.get("refusal")), str)
        if not is_text and _is_storable([*parts, part]):
            parts.append(dict(part))
    return parts


def _is_storable(parts: Sequence[Any]) -> bool:
    """Return whether parts are JSON values, and short enough to store."""
    try:
        return len(json.dumps(parts)) <= PARTS_MAX_CHARS
    except (TypeError, ValueError):  # such as the bytes of a picture
        return False


def batches(messages: Sequence[dict[str, Any]]) -> Iterator[Sequence[dict[str, Any]]]:
    """Yield the messages of each request. Without messages, yield one empty request, which the platform rejects."""
    for first in range(0, max(len(messages), 1), BATCH):
        yield messages[first : first + BATCH]


def joined(answers: Sequence[Appended]) -> Appended:
    """Merge the responses for all batches."""
    messages = [message for answer in answers for message in answer["messages"]]
    jobs = [job for answer in answers for job in answer["jobs"]]
    joined = answers[-1].copy()  # it has the latest counters
    joined["messages"], joined["jobs"] = messages, jobs
    return joined
