"""Whether text in a context can be taken for an element, a heading or a role, or is invisible."""

import json
import re
from collections.abc import Iterator
from xml.etree import ElementTree

TAGS = re.compile("[\U000e0000-\U000e007f]")
ELEMENTS = {
    "MemoryContext",
    "Policy",
    "CollectiveMemory",
    "MemoryShard",
    "UserMemory",
    "Moments",
    "CurrentConversation",
    "ConversationFacts",
    "RetrievedMemories",
    "OpenItems",
    "RecentTurns",
    "Turn",
    "Query",
}
DEEPEST = 3
ROLES = ("system", "user", "assistant", "tool")


def escapes(name: str, context: str, marks: list[str]) -> Iterator[str]:
    """Yield the problems of a context.

    Args:
        name: The format of the context.
        context: The context.
        marks: The marks of the planted texts.
    """
    if any(mark in context for mark in marks) or TAGS.search(context):
        if TAGS.search(context):
            yield "has invisible characters"
        yield from {"xml": _xml, "stable": _xml, "markdown": _markdown, "messages": _messages}.get(name, _none)(
            context, marks
        )


def _none(_context: str, _marks: list[str]) -> Iterator[str]:
    yield from ()


def _xml(context: str, _marks: list[str]) -> Iterator[str]:
    try:
        root = ElementTree.fromstring(context)  # noqa: S314 (our own, and broken is what is looked for)
    except ElementTree.ParseError as error:
        yield f"is not XML: {error}"
        return
    yield from (f"has an element {element.tag}" for element in root.iter() if element.tag not in ELEMENTS)
    if _depth(root) > DEEPEST:
        yield "has elements in elements"


def _depth(element: ElementTree.Element) -> int:
    return 1 + max(map(_depth, element), default=0)


def _markdown(context: str, marks: list[str]) -> Iterator[str]:
    for line in context.splitlines():
        if any(mark in line for mark in marks) and not line.startswith(("- ", "  ")):
            yield "has a line of its own"


def _messages(context: str, marks: list[str]) -> Iterator[str]:
    for message in json.loads(context):
        if message["role"] not in ROLES:
            yield f"has the role {message['role']}"
        if message["role"] == "system":
            yield from _xml(message["content"], marks)
