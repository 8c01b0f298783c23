"""mem0's methods in the Python client, used with a running site."""

from collections.abc import Iterator
from typing import Any

import pytest

from memory_platform.client import Refused
from memory_platform.client.mem0 import Memory
from moments_app.models import MemoryStream
from sessions_app.models import Session, UserProfile
from tests.support.chat import transcript
from tests.support.first_steps import printed, python_in
from tests.support.streams import note

ADA = {"user_id": "ada"}


@pytest.fixture
def memory(site: str, key: str) -> Iterator[Memory]:
    memory = Memory(api_key=key, url=site)
    yield memory
    memory.close()


@pytest.fixture
def bees(ada: UserProfile) -> dict[str, Any]:
    """A fact of Ada, as the client returns it."""
    atom = note(MemoryStream.objects.ensure_of_person(ada, "default"), "User keeps bees.", "fact")
    return {"id": f"ada/{atom.atom_id}", "memory": "User keeps bees."}


def texts(answer: dict[str, list[dict[str, Any]]]) -> list[str]:
    return [one["memory"] for one in answer["results"]]


def test_the_code_in_the_docs_finds_what_was_added(site: str, key: str) -> None:
    [code] = [block for block in python_in("clients.md") if "client.mem0" in block]
    assert "I restore kilns in Turin." in printed(code, site, key)


def test_another_users_memories_are_not_found_or_changed(memory: Memory, bees: dict[str, Any]) -> None:
    memory.add("I keep goats.", user_id="bo")
    assert texts(memory.search("Who keeps bees or goats?", filters={"user_id": "bo"})) == ["I keep goats."]
    assert memory.get_all(filters={"user_id": "bo"}) == {"results": []}
    as_bo = bees["id"].replace("ada", "bo")
    assert memory.get(as_bo) is None
    for change in (memory.delete, memory.history, lambda one: memory.update(one, "Keeps goats.")):
        with pytest.raises(Refused) as refused:
            change(as_bo)
        assert refused.value.status == 404
    assert texts(memory.get_all(filters=ADA)) == ["User keeps bees."]


def test_messages_are_added_to_a_conversation_and_found_at_once(memory: Memory) -> None:
    said = [{"role": "user", "content": "I love kilns."}, {"role": "assistant", "content": "Noted."}]
    added = memory.add(said, user_id="ada", run_id="friday", metadata={"topic": "craft"})
    assert texts(added) == ["I love kilns.", "Noted."]
    assert transcript("ada", "friday") == [("user", "I love kilns."), ("assistant", "Noted.")]
    memory.add("I fly to Rome.", user_id="ada", agent_id="travel")
    memory.add("I run.", user_id="ada", agent_id="fitness")
    assert {(one.session_id, one.agent_id) for one in Session.objects.exclude(session_id="friday")} == {
        ("travel", "travel"),
        ("fitness", "fitness"),
    }
    [found] = [one for one in memory.search("kilns", filters=ADA)["results"] if one["memory"] == "I love kilns."]
    assert found["id"] == added["results"][0]["id"] and found["score"] > 0
    with pytest.raises(ValueError, match="is not the id of a fact"):
        memory.update(found["id"], "I love glass.")


def test_a_memory_is_updated_and_deleted_under_its_first_id(
    memory: Memory, bees: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory_platform.client.mem0.PAGE", 1)
    [listed] = memory.get_all(filters=ADA)["results"]
    assert listed == memory.get(bees["id"]) and bees.items() < listed.items()
    for text in ("User keeps goats.", "User keeps two goats."):
        assert memory.update(memory_id=bees["id"], data=text) == {"message": "Memory updated successfully!"}
        assert texts(memory.get_all(filters=ADA)) == [text]
        assert memory.get(bees["id"])["memory"] == text  # type: ignore[index]
    memory.delete(bees["id"])
    assert memory.get(bees["id"]) is None and memory.get_all(filters=ADA) == {"results": []}
    changes = [(one["event"], one["old_memory"], one["new_memory"]) for one in memory.history(bees["id"])]
    assert changes == [
        ("ADD", None, "User keeps bees."),
        ("UPDATE", "User keeps bees.", "User keeps goats."),
        ("UPDATE", "User keeps goats.", "User keeps two goats."),
        ("DELETE", "User keeps two goats.", None),
    ]


def test_all_memories_of_a_user_are_listed_and_deleted(
    memory: Memory, ada: UserProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory_platform.client.mem0.PAGE", 2)
    stream = MemoryStream.objects.ensure_of_person(ada, "default")
    for name in ("one", "two", "three", "four", "five"):
        note(stream, f"User has {name} cats.", "fact")
    assert len(memory.get_all(filters=ADA)["results"]) == 5
    assert len(memory.get_all(filters=ADA, top_k=3)["results"]) == 3
    memory.delete_all(user_id="ada")
    assert memory.get_all(filters=ADA) == {"results": []}
    memory.delete_all(user_id="ada")


def test_filters_that_the_platform_lacks_are_rejected(memory: Memory) -> None:
    with pytest.raises(TypeError, match="category"):
        memory.search("kilns", filters={**ADA, "category": "craft"})
    with pytest.raises(TypeError, match="agent_id"):
        memory.get_all(filters={**ADA, "agent_id": "travel"})
    assert memory.search("kilns", filters=ADA, top_k=1_000) == {"results": []}
    with pytest.raises(TypeError, match="user_id"):
        memory.get_all(filters={})
