"""Uses the client's classes in frameworks. Run by a Python that has them: `python in_frameworks.py URL KEY`."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from operator import add
from typing import Annotated, Any, TypedDict

import httpx2
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import BASE_CAPABILITIES
from langgraph.checkpoint.serde.types import ERROR
from langgraph.graph import START, StateGraph
from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, PutOp, SearchOp
from langgraph.types import Command, interrupt

from memory_platform.client import AsyncMemory, Client, Memory
from memory_platform.client.langchain import MemoryChatHistory
from memory_platform.client.langgraph import MemoryStore
from memory_platform.client.langgraph_checkpoints import MemoryCheckpointer
from memory_platform.client.openai_agents import MemorySession

URL, KEY = sys.argv[1:]


async def use_a_session() -> None:
    """Items are returned unchanged and in order, without popped and cleared ones."""
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


async def begin_another_session() -> None:
    """A new session of the same person starts with what memory knows about them."""
    with Memory("known", url=URL, key=KEY) as memory:
        history = MemoryChatHistory(memory)
        history.add_messages([HumanMessage("Hello.")])
        memory.client.call("PATCH", "users/known", json={"summary": "Restores kilns in Turin."})
        first, second = history.messages
        assert first.type == "system" and "kilns in Turin" in str(first.content) and second.content == "Hello."
    async with AsyncMemory("known", session_id="new", url=URL, key=KEY) as memory:
        session = MemorySession(memory)
        await session.add_items([{"role": "user", "content": "Hello."}])
        known, hello = await session.get_items(limit=1)
        assert known["role"] == "system" and "kilns in Turin" in known["content"]
        assert hello == await session.pop_item()


async def use_a_session_with_pictures() -> None:
    """Pictures and files are returned, unless they are too long to store."""
    picture = {"type": "input_image", "image_url": "https://example.com/kiln.png", "detail": "auto"}
    file = {"type": "input_file", "file_data": "data:text/plain;base64,QQ=="}
    long = {"type": "input_image", "image_url": f"data:image/png;base64,{'A' * 200_000}", "detail": "auto"}
    text = {"type": "input_text", "text": "What is this?"}
    async with AsyncMemory("pictures", session_id="s1", url=URL, key=KEY) as memory:
        session = MemorySession(memory)
        result = {"type": "function_call_output", "call_id": "c1"}
        await session.add_items(
            [
                {"role": "user", "content": [text, picture, long, file]},
                {"role": "user", "content": [picture]},
                {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
                result | {"output": [text, picture]},
                {"role": "user", "content": [text, long]},
            ]
        )
        first, second, _, fourth, fifth = await session.get_items()
        assert first == {"role": "user", "content": [text, picture, file]}
        assert second == {"role": "user", "content": [picture]}
        assert fourth == result | {"output": [text, picture]}
        assert fifth == {"role": "user", "content": "What is this?"}


def use_a_store() -> None:
    """Items can be put, replaced, found, listed and deleted."""
    with Memory("store", url=URL, key=KEY) as memory:
        store = MemoryStore(memory)
        assert store.get(("trips",), "turin") is None
        store.put(("trips", "2025"), "turin", {"text": "I restored kilns in Turin.", "days": 3})
        store.put(("trips", "2026"), "oslo", {"text": "I fired glass in Oslo.", "days": 5})
        store.put(("trips", "2026"), "oslo", {"text": "I fired glass in Bergen.", "days": 6})
        assert store.get(("trips", "2026"), "oslo").value["days"] == 6
        [found] = store.search(("trips",), query="glass")
        assert (found.key, found.namespace) == ("oslo", ("trips", "2026")) and found.score > 0
        assert found.updated_at > found.created_at
        assert store.search(("trips",), query="Oslo") == store.search(("trips", "2025"), query="glass") == []
        assert {item.key for item in store.search(("trips",))} == {"turin", "oslo"}
        for wanted in ({"days": {"$gt": 3}}, {"days": 6}, {"days": {"$ne": 3, "$lte": 6}}):
            assert [item.key for item in store.search((), filter=wanted)] == ["oslo"]
        assert [item.key for item in store.search((), query="glass kilns", filter={"days": 3})] == ["turin"]
        asyncio.run(store.adelete(("trips", "2026"), "oslo"))
        assert store.get(("trips", "2026"), "oslo") is None
        store.put(("od:d", "a/b"), "c?d", {"n": 1})
        assert store.search(("od:d",))[0].namespace == ("od:d", "a/b")
        namespace, key = ("\u4e2a\u4eba\u8d44\u6599" * 20, "\u504f\u597d"), "\u65c5\u884c\u8ba1\u5212" * 20
        store.put(namespace, key, {"text": "\u6211\u4fee\u590d\u7a91\u7089"})
        assert [item.key for item in store.search(namespace, query="\u7a91\u7089")] == [key]
        store.put(("index",), "none", {"name": "glass"}, index=False)
        store.put(("index",), "some", {"name": "glass", "about": {"text": "pots"}}, index=["about.text"])
        assert store.search(("index",), query="glass") == []
        assert [item.key for item in store.search(("index",), query="pots")] == ["some"]
        assert memory.sessions()["sessions"] == []


def let_items_expire() -> None:
    """An item expires after the time to live, which reads restart."""
    with Memory("ttl", url=URL, key=KEY) as memory:
        store = MemoryStore(memory, ttl={"default_ttl": 1.2 / 60})
        store.put(("n",), "read", {"text": "kilns"})
        store.put(("n",), "left", {"text": "kilns"})
        store.put(("n",), "kept", {"text": "kilns"}, ttl=None)
        for _ in range(3):
            time.sleep(0.7)
            assert store.get(("n",), "read")
            assert [item.key for item in store.search(("n",), filter={"text": "felt"})] == []
        assert [item.key for item in store.search(("n",), refresh_ttl=False)] == ["kept", "read"]
        time.sleep(1.3)
        read, kept = store.batch([GetOp(("n",), "read"), GetOp(("n",), "kept", refresh_ttl=False)])
        assert read is None and kept.value == {"text": "kilns"}


def use_a_store_in_batches() -> None:
    """A batch takes few requests. Its puts are applied last; of several puts to one address, the last one wins."""
    paths: list[str] = []
    http = httpx2.Client(event_hooks={"request": [lambda request: paths.append(request.url.path)]})
    store = MemoryStore(Memory("batches", client=Client(URL, KEY, http=http)))
    store.batch([PutOp(("other",), f"k{number}", {"text": "Glass and kilns."}) for number in range(150)])
    assert len(paths) == 2
    store.put(("profile",), "kiln", {"text": "The kilns are in Turin.", "n": 1})
    paths.clear()
    ops = [
        GetOp(("profile",), "kiln"),
        PutOp(("profile",), "kiln", {"n": 2}),
        GetOp(("other",), "k149"),
        GetOp(("other",), "none"),
        PutOp(("profile",), "kiln", {"n": 3}),
        PutOp(("other",), "k0", None),
        SearchOp(("profile",), query="glass kilns"),
        ListNamespacesOp(),
    ]
    kiln, first, other, missing, second, gone, found, namespaces = store.batch(ops)
    assert kiln.value["n"] == 1 and other.key == "k149"
    assert first is second is gone is missing is None
    assert [item.key for item in found] == ["kiln"] and namespaces == [("other",), ("profile",)]
    assert len(paths) == 5
    assert store.get(("profile",), "kiln").value == {"n": 3} and store.get(("other",), "k0") is None
    paths.clear()
    assert len(store.search(("other",), limit=10)) == 10 and len(paths) == 1
    assert len(store.search(("other",), limit=1_000)) == 149 and len(paths) == 2
    assert [item.key for item in store.search(("other",), limit=2, offset=147)] == ["k98", "k99"]


def list_namespaces_of_a_store() -> None:
    """Namespaces are matched and truncated as LangGraph's own store tests expect."""
    with Memory("namespaces", url=URL, key=KEY) as memory:
        store = MemoryStore(memory)
        paths = ["a b c", "a b d e", "a b d i", "a b f", "a c f", "b a f", "users 123", "users 456 settings"]
        for path in (*paths, "admin users 789"):
            store.put(tuple(path.split()), "key", {"data": path})

        def listed(**asked: Any) -> list[str]:
            return [" ".join(namespace) for namespace in store.list_namespaces(**asked)]

        assert listed(prefix=("a", "b")) == ["a b c", "a b d e", "a b d i", "a b f"]
        assert listed(suffix=("f",)) == ["a b f", "a c f", "b a f"]
        assert listed(prefix=("a",), suffix=("f",)) == ["a b f", "a c f"]
        assert listed(prefix=("a", "b"), max_depth=3) == ["a b c", "a b d", "a b f"]
        assert listed(prefix=("a", "b"), limit=2) == ["a b c", "a b d e"]
        assert listed(prefix=("a", "b"), offset=2) == ["a b d i", "a b f"]
        assert listed(prefix=("a", "*", "f")) == ["a b f", "a c f"]
        assert listed(suffix=("*", "f")) == ["a b f", "a c f", "b a f"]
        assert listed(prefix=("*", "users"), suffix=("*", "789")) == ["admin users 789"]
        assert listed(prefix=("nonexistent",)) == []
        assert listed(prefix=("users", "123")) == ["users 123"]
        for wrong in ((), ("the", "thing.about"), ("some", "fun", ""), ("langgraph", "foo")):
            try:
                store.put(wrong, "foo", {"foo": "bar"})
            except InvalidNamespaceError:
                continue
            raise AssertionError(wrong)


def share_a_store() -> None:
    """One store for several users: a label of the namespace names the user, and items are erased with the user."""
    with Client(URL, KEY) as client:
        store = MemoryStore(Memory(client=client), user_label=1)
        store.put(("memories", "nora"), "kiln", {"text": "The kiln is in Turin."})
        store.put(("memories", "bo"), "kiln", {"text": "The kiln is in Oslo."})
        store.put(("settings",), "color", {"value": "blue"})
        assert [item.value["text"] for item in store.search(("memories", "nora"), query="kiln")] == [
            "The kiln is in Turin."
        ]
        assert store.list_namespaces() == [("settings",)]
        Memory("nora", client=client).erase()
        assert store.get(("memories", "nora"), "kiln") is None
        assert store.get(("memories", "bo"), "kiln") and store.get(("settings",), "color")


async def check_the_checkpointer() -> None:
    """A checkpointer passes LangGraph's own tests of checkpointers."""

    async def made() -> AsyncIterator[MemoryCheckpointer]:
        with Memory("checkpoints", url=URL, key=KEY) as memory:
            yield MemoryCheckpointer(memory)

    report = await validate(checkpointer_test(name="MemoryCheckpointer")(made))
    for capability in BASE_CAPABILITIES:
        result = report.results[capability.value]
        assert result.passed, (capability, result.failures)


def list_checkpoints() -> None:
    """Checkpoints are listed newest first, whatever their ids and sizes, and writes of a task are stored once."""
    with Memory("threads", url=URL, key=KEY) as memory:
        checkpointer = MemoryCheckpointer(memory)
        config: dict[str, Any] = {"configurable": {"thread_id": "t" * 300, "checkpoint_ns": "a|b" * 100}}
        put = config
        for name in ("a", "b", "ba", "c"):
            checkpoint = {**empty_checkpoint(), "id": name, "channel_values": {"text": name * 1_000_000}}
            put = checkpointer.put(put, checkpoint, {"step": len(name)}, {})
        assert [one.checkpoint["id"] for one in checkpointer.list(config)] == ["c", "ba", "b", "a"]
        found = list(checkpointer.list(None, before=put, filter={"step": 1}, limit=1))
        assert [one.checkpoint["channel_values"]["text"] for one in found] == ["b" * 1_000_000]
        assert found[0].parent_config["configurable"]["checkpoint_id"] == "a"
        checkpointer.put_writes(put, [("n", 1), ("m", "m" * 400_000)], "task 2", "2")
        checkpointer.put_writes(put, [("n", 2), (ERROR, "x")], "task 2", "2")
        checkpointer.put_writes(put, [(ERROR, "y")], "task 2", "2")
        checkpointer.put_writes(put, [("n", number) for number in range(101)], "task 1", "1")
        latest = checkpointer.get_tuple(config)
        assert latest and latest.config == put
        first = [("task 1", "n", number) for number in range(101)]
        second = [("task 2", ERROR, "y"), ("task 2", "n", 1), ("task 2", "m", "m" * 400_000)]
        assert latest.pending_writes == first + second
        checkpointer.put_writes({"configurable": {**put["configurable"], "checkpoint_id": "d"}}, [("n", 1)], "task")
        assert checkpointer.get_tuple(config) == latest
        other = MemoryCheckpointer(Memory("others", url=URL, key=KEY))
        assert other.get_tuple(config) is None and list(other.list(None)) == []
        store = MemoryStore(memory)
        assert store.list_namespaces() == store.search(()) == []  # a store doesn't return checkpoints
        checkpointer.delete_thread("t" * 300)
        assert list(checkpointer.list(None)) == []


def resume_a_graph() -> None:
    """A graph that waits for an answer continues with another client. Its checkpoints are erased with the user."""

    class State(TypedDict):
        said: Annotated[list[str], add]

    def ask(state: State) -> dict[str, Any]:
        return {"said": [interrupt("Where is the kiln?")]}

    def built(memory: Memory) -> Any:
        builder = StateGraph(State).add_node("greet", lambda state: {"said": ["Hello."]}).add_node("ask", ask)
        builder.add_edge(START, "greet").add_edge("greet", "ask")
        return builder.compile(checkpointer=MemoryCheckpointer(memory))

    config: Any = {"configurable": {"thread_id": "1"}}
    with Memory("graph", url=URL, key=KEY) as memory:
        assert built(memory).invoke({"said": []}, config)["__interrupt__"][0].value == "Where is the kiln?"
    with Memory("graph", url=URL, key=KEY) as memory:
        graph = built(memory)
        assert graph.get_state(config).next == ("ask",)
        assert asyncio.run(graph.ainvoke(Command(resume="In Turin."), config)) == {"said": ["Hello.", "In Turin."]}
        states = list(graph.get_state_history(config))
        assert [state.values["said"] for state in states[:2]] == [["Hello.", "In Turin."], ["Hello."]]
        assert graph.get_state(states[1].config).next == ("ask",)
        memory.erase()
        assert graph.get_state(config).values == {}


def use_a_history() -> None:
    """Messages are returned unchanged."""
    with Memory("history", url=URL, key=KEY) as memory:
        history = MemoryChatHistory(memory)
        assert history.messages == []
        call = {"name": "look", "args": {"at": "kiln"}, "id": "c1", "type": "tool_call"}
        messages = [
            SystemMessage("Be brief."),
            HumanMessage("Where is the kiln?"),
            HumanMessage([{"type": "text", "text": "Here?"}, {"type": "image_url", "image_url": {"url": URL}}]),
            AIMessage("", tool_calls=[call]),
            ToolMessage("In Turin.", tool_call_id="c1"),
            AIMessage("It is in Turin."),
        ]
        history.add_messages(messages)
        assert [(one.type, one.content) for one in history.messages] == [(one.type, one.content) for one in messages]
        assert history.messages[3].tool_calls == [call]
        history.clear()
        assert history.messages == []


if __name__ == "__main__":
    asyncio.run(use_a_session())
    asyncio.run(begin_another_session())
    asyncio.run(use_a_session_with_pictures())
    use_a_store()
    let_items_expire()
    use_a_store_in_batches()
    list_namespaces_of_a_store()
    share_a_store()
    asyncio.run(check_the_checkpointer())
    list_checkpoints()
    resume_a_graph()
    use_a_history()
    sys.stdout.write("All checks passed.\n")
