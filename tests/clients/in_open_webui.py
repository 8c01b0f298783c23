"""Runs the filter by Open WebUI's own code. Run by a Python that has it: `python in_open_webui.py URL KEY`."""

import asyncio
import logging
import sys
from types import SimpleNamespace
from typing import Any

from open_webui.models.functions import FunctionMeta, FunctionModel
from open_webui.utils.filter import process_filter_function

from memory_platform.client import Memory

URL, KEY = sys.argv[1:]
FUNCTION = FunctionModel(
    id="memory",
    user_id="operator",
    name="Memory",
    type="filter",
    content="from memory_platform.client.open_webui import Filter\n",
    meta=FunctionMeta(),
    created_at=0,
    updated_at=0,
)
REQUEST = SimpleNamespace(app=SimpleNamespace(state=SimpleNamespace()))


async def run(kind: str, chat: str, *said: str, key: str = KEY) -> list[dict[str, Any]]:
    """Run the filter's `inlet` or `outlet` for a chat with alternating messages, and return its messages."""
    messages = [
        {"id": f"{chat}-{number}", "role": ("user", "assistant")[number % 2], "content": text}
        for number, text in enumerate(said)
    ]
    valves = {"memory": {"url": URL, "key": key}}
    extra = {"__user__": {"id": "nora", "email": "nora@example.com"}, "__metadata__": {"chat_id": chat}}
    body, _, _ = await process_filter_function(
        REQUEST, FUNCTION, kind, {"model": "m", "messages": messages}, extra, None, valves, ["memory"]
    )
    return list(body["messages"])


async def main() -> None:
    said = ["I restore kilns in Turin.", "Noted."]
    assert [message["content"] for message in await run("outlet", "friday", *said)] == said
    await run("outlet", "friday", *said)  # again, for example after a retry
    with Memory("nora", session_id="friday", url=URL, key=KEY) as memory:
        assert [message["content"] for message in memory.transcript()] == said
    reminder, question = await run("inlet", "monday", "Where do I restore kilns?")
    assert reminder["role"] == "system" and "I restore kilns in Turin." in reminder["content"]
    assert question["content"] == "Where do I restore kilns?"
    history = await run("inlet", "monday", "Hello.", "Noted.", "Where do I restore kilns?")
    assert [message["role"] for message in history] == ["system", "user", "assistant", "user"]
    await run("outlet", "temporary:1", *said)
    with Memory("nora", url=URL, key=KEY) as memory:
        assert [one["session_id"] for one in memory.sessions()["sessions"]] == ["friday"]
    logging.disable()
    for kind in ("inlet", "outlet"):
        assert len(await run(kind, "monday", "Where do I restore kilns?", key="mem_wrong")) == 1
    sys.stdout.write("All checks passed.\n")


asyncio.run(main())
