"""A person who moves from mem0, Zep or Honcho gets the same evidence for the same questions afterward."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from memory_platform.client import Memory, mem0
from sessions_app.models import ApiKey
from tests.support.exports import as_lines
from tests.support.live import live_site

pytestmark = pytest.mark.slow

FIRST = 3  # results that may contain the evidence
AT = "2026-03-02T08:00:00Z"
# Each question, what a memory system has concluded, what the person said, and the words that answer the question.
KNOWN = (
    ("What is my sister called?", "User's sister is called Ingrid.", "My sister is called Ingrid.", "Ingrid"),
    ("Which city do I live in?", "User lives in the city of Bergen.", "I live in the city of Bergen.", "Bergen"),
    ("What am I allergic to?", "User is allergic to peanuts.", "I am allergic to peanuts.", "peanuts"),
    ("Which instrument do I play?", "User's instrument is the cello.", "My instrument is the cello.", "cello"),
    ("What is the name of my dog?", "The name of User's dog is Bruno.", "The name of my dog is Bruno.", "Bruno"),
    ("When is my wedding anniversary?", "User's anniversary is 14 June.", "My anniversary is 14 June.", "14 June"),
    ("What do I drink in the morning?", "User drinks green tea.", "I always drink green tea.", "green tea"),
    ("Which language am I learning?", "User is learning Finnish.", "I am learning Finnish.", "Finnish"),
    ("What car do I drive?", "User's car is an old Volvo.", "My car is an old Volvo.", "Volvo"),
    ("Which movies do I like?", "User likes movies about space.", "I like movies about space.", "space"),
)
CONCLUDED = [known[1] for known in KNOWN]
SAID = [known[2] for known in KNOWN]


def from_mem0(path: Path) -> Path:
    """Write a page of mem0's `get_all` with ten memories."""
    memories = [
        {"id": f"m{number}", "memory": text, "user_id": "ada", "created_at": AT, "updated_at": AT}
        for number, text in enumerate(CONCLUDED)
    ]
    return as_lines(path, {"results": memories})


def from_zep(path: Path) -> Path:
    """Write five facts of Zep's graph, and a thread with five messages."""
    edges = [{"uuid": f"e{number}", "fact": text, "created_at": AT} for number, text in enumerate(CONCLUDED[:5])]
    messages = [
        {"uuid": f"m{number}", "role": "user", "content": text, "created_at": AT}
        for number, text in enumerate(SAID[5:])
    ]
    return as_lines(path, {"thread_id": "t1", "user_id": "ada", "messages": messages}, *edges)


def from_honcho(path: Path) -> Path:
    """Write five conclusions of Honcho about a peer, and five messages of this peer."""
    concluded = [
        {"id": f"c{number}", "observer_id": "tutor", "observed_id": "ada", "content": text, "created_at": AT}
        for number, text in enumerate(CONCLUDED[:5])
    ]
    messages = [
        {"id": f"m{number}", "peer_id": "ada", "session_id": "s1", "content": text, "created_at": AT}
        for number, text in enumerate(SAID[5:])
    ]
    return as_lines(path, {"items": messages, "page": 1}, {"items": concluded, "page": 1})


@pytest.fixture
def connection(transactional_db: None) -> Iterator[dict[str, Any]]:
    """A running site and a key for it."""
    with live_site() as url:
        yield {"url": url, "key": ApiKey.objects.issue("application")[1]}


def with_evidence(search: Callable[[str], list[str]]) -> list[str]:
    """Return the answers that are among the first results of a search for their question."""
    return [answer for question, *_, answer in KNOWN if any(answer in text for text in search(question))]


ANSWERS = [known[-1] for known in KNOWN]


def test_mem0s_search_finds_each_answer_after_the_move(tmp_path: Path, connection: dict[str, Any]) -> None:
    memory = mem0.Memory(api_key=connection["key"], url=connection["url"])

    def search(question: str) -> list[str]:
        found = memory.search(question, filters={"user_id": "ada"}, top_k=FIRST)
        return [one["memory"] for one in found["results"]]

    assert with_evidence(search) == []
    call_command("import_sessions", str(from_mem0(tmp_path / "mem0.jsonl")))
    assert with_evidence(search) == ANSWERS
    listed = memory.get_all(filters={"user_id": "ada"})["results"]
    assert sorted(one["memory"] for one in listed) == sorted(CONCLUDED)
    memory.close()


@pytest.mark.parametrize("exported", [from_zep, from_honcho])
def test_a_search_finds_each_answer_after_a_move_from_zep_or_honcho(
    tmp_path: Path, connection: dict[str, Any], exported: Callable[[Path], Path]
) -> None:
    options: dict[str, Any] = {"user": "ada", "agent": "tutor"}
    with Memory("ada", **connection) as memory:

        def search(question: str) -> list[str]:
            return [one["content"] for one in memory.search(question, match_count=FIRST)["results"]]

        assert with_evidence(search) == []
        call_command("import_sessions", str(exported(tmp_path / "export.jsonl")), **options)
        assert with_evidence(search) == ANSWERS
        assert all(answer in memory.context(question)["context"] for question, *_, answer in KNOWN)
