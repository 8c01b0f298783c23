"""What frameworks do with the client's classes, run by a Python that has them: `python in_frameworks.py URL KEY`."""

import asyncio
import sys
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from memory_platform.client import AsyncMemory, Memory
from memory_platform.client.langchain import MemoryChatHistory
from memory_platform.client.langgraph import MemoryStore
from memory_platform.client.openai_agents import MemorySession

URL, KEY = sys.argv[1:]


async def use_a_session() -> None:
    """Items come back as they were, in order; what is popped or cleared is gone."""
    async with AsyncMemory("agents", session_id="s1", url=URL, key=KEY) as memory:
        session = MemorySession(memory)
        assert await session.get_items() == [] and await session.pop_item() is None
        await session.clear_session()
        items: list[dict[str, Any]] = [
            {"role": "user", "content": "Where is the kiln?"},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "In Turin."},
            {"type": "reasoning", "id": "r1", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is in Turin."}]},
        ]
        await session.add_items(items)
        said = {"role": "assistant", "content": "It is in Turin."}
        assert await session.get_items() == [*items[:4], said]
        assert await session.get_items(limit=2) == [items[3], said]
        assert await session.pop_item() == said
        assert await session.get_items() == items[:4]
        await session.clear_session()
        assert await session.get_items() == []


def use_a_store() -> None:
    """Items are put, replaced, found, listed and deleted."""
    with Memory("store", url=URL, key=KEY) as memory:
        store = MemoryStore(memory)
        assert store.get(("trips",), "turin") is None
        store.put(("trips", "2025"), "turin", {"text": "I restored kilns in Turin.", "days": 3})
        store.put(("trips", "2026"), "oslo", {"text": "I fired glass in Oslo.", "days": 5})
        store.put(("trips", "2026"), "oslo", {"text": "I fired glass in Bergen.", "days": 6})
        memory.add("I fired glass at home.")
        assert store.get(("trips", "2026"), "oslo").value["days"] == 6
        assert [item.key for item in store.search(("trips",), query="glass")] == ["oslo"]
        assert store.search(("trips", "2025"), query="glass") == []
        assert {item.key for item in store.search(("trips",))} == {"turin", "oslo"}
        assert [item.key for item in store.search((), filter={"days": {"$gt": 3}})] == ["oslo"]
        assert store.list_namespaces(prefix=("trips",), max_depth=1) == [("trips",)]
        assert store.list_namespaces(suffix=("2026",)) == [("trips", "2026")]
        asyncio.run(store.adelete(("trips", "2026"), "oslo"))
        assert store.get(("trips", "2026"), "oslo") is None
        store.put(("od:d", "a/b"), "c?d", {"n": 1})
        assert store.search(("od:d",))[0].namespace == ("od:d", "a/b")


def use_a_history() -> None:
    """Messages come back as they were."""
    with Memory("history", url=URL, key=KEY) as memory:
        history = MemoryChatHistory(memory)
        assert history.messages == []
        call = {"name": "look", "args": {"at": "kiln"}, "id": "c1", "type": "tool_call"}
        messages = [
            SystemMessage("Be brief."),
            HumanMessage("Where is the kiln?"),
            AIMessage("", tool_calls=[call]),
            ToolMessage("In Turin.", tool_call_id="c1"),
            AIMessage("It is in Turin."),
        ]
        history.add_messages(messages)
        assert [(one.type, one.content) for one in history.messages] == [(one.type, one.content) for one in messages]
        assert history.messages[2].tool_calls == [call]
        history.clear()
        assert history.messages == []


if __name__ == "__main__":
    asyncio.run(use_a_session())
    use_a_store()
    use_a_history()
    sys.stdout.write("All holds.\n")
