"""The Python client, used with a running site."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints, is_typeddict

import httpx2
import pytest

from memory_platform.client import AsyncMemory, Client, Memory, Refused, Unreachable, answers, retries
from memory_platform.client.messages import BATCH
from moments_app.models import MemoryStream, PromptVersion
from sessions_app.models import ApiKey, Message, UserProfile
from tests.support import blocking_client
from tests.support.contract import description
from tests.support.first_steps import printed, python_in
from tests.support.streams import note


@pytest.fixture
def memory(site: str, key: str) -> Iterator[Memory]:
    with Memory("ada", url=site, key=key) as memory:
        yield memory


# --- usage ---


def test_the_first_code_in_the_docs_runs(site: str, key: str) -> None:
    blocking, waiting = python_in("clients.md")[:2]
    assert "I restore kilns in Turin." in printed(blocking, site, key)
    assert "I restore kilns in Turin." in printed(waiting, site, key)


def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEMORY_KEY", raising=False)
    with pytest.raises(ValueError, match="MEMORY_KEY"):
        Memory("ada")


def test_the_code_about_prompts_runs(site: str, key: str) -> None:
    [changing] = python_in("api.md")
    assert printed(changing, site, key).split() == ["1"]
    assert [version.content[-21:] for version in PromptVersion.objects.filter(number=2)] == ["\nName every decision."]


def test_the_client_covers_all_calls_from_the_first_message_to_the_erasure(memory: Memory) -> None:
    added = memory.add([{"role": "user", "content": "I keep bees."}, {"role": "assistant", "content": "How many?"}])
    assert [message["created"] for message in added["messages"]] == [True, True]
    assert [message["content"] for message in memory.messages()["messages"]] == ["I keep bees.", "How many?"]
    context = memory.session("friday").context("What do I keep?", format="messages", max_tokens=800)
    assert "I keep bees." in str(context["context"])
    memory.add({"role": "assistant", "content": "Bees."}, session_id="friday", context_id=context["context_id"])
    assert "I keep bees." in [result["content"] for result in memory.search("bees")["results"]]
    assert [session["session_id"] for session in memory.sessions()["sessions"]] == ["friday", "default"]
    assert memory.update_profile(timezone="Europe/Rome")["timezone"] == memory.profile().get("timezone")
    job = memory.job(memory.build(force=True)["job_id"])
    assert job["process"] == "build_moments" and memory.moments(limit=3)["moments"] == []
    assert memory.export().startswith(b"PK")
    memory.delete_session("friday")
    assert memory.compact()["job_id"]
    assert memory.erase()["rows"]["messages"] == 2
    with pytest.raises(Refused) as refused:
        memory.profile()
    assert (refused.value.status, refused.value.code) == (404, "not_found")


def test_content_parts_can_be_added(memory: Memory) -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://bees.example/a.png"}}
    memory.add({"role": "user", "content": [{"type": "text", "text": "This is a hive."}, picture]})
    [message] = memory.messages()["messages"]
    assert (message["content"], message["payload"]) == ("This is a hive.", {"parts": [picture]})


def test_facts_can_be_read_corrected_and_withdrawn(memory: Memory, ada: UserProfile) -> None:
    stream = MemoryStream.objects.create(user=ada, stream_type=MemoryStream.Type.USER)
    note(stream, "User is a tailor.", "fact")
    [fact] = memory.facts()["facts"]
    assert memory.correct(fact["fact_id"], "User is a sailor.").get("after") == "User is a sailor."
    [fact] = memory.facts()["facts"]
    assert memory.withdraw(fact["fact_id"])["before"] == "User is a sailor."


def test_many_messages_are_sent_in_batches_and_read_in_pages(memory: Memory) -> None:
    said = [{"role": "user", "content": f"This is number {number}."} for number in range(BATCH + 3)]
    added = memory.add(said)
    assert [message["sequence"] for message in added["messages"]] == list(range(BATCH + 3))
    assert added["message_count"] == BATCH + 3
    assert [message["content"] for message in memory.transcript(after=1)] == [one["content"] for one in said[2:]]


def test_the_async_client_works_in_the_same_way(site: str, key: str) -> None:
    async def use() -> list[str]:
        async with AsyncMemory("ada", url=site, key=key) as memory:
            await memory.add("I keep bees.")
            return [message["content"] async for message in memory.transcript()]

    assert asyncio.run(use()) == ["I keep bees."]


def test_names_with_reserved_url_characters_are_sent_unchanged(site: str, key: str) -> None:
    with Memory("ada+b@example.org?x=1", session_id="a b?c#d", url=site, key=key) as memory:
        memory.add("Hello.")
        assert memory.profile()["user_id"] == "ada+b@example.org?x=1"
        assert [message["content"] for message in memory.transcript()] == ["Hello."]


def test_a_user_key_needs_no_user_id(site: str, ada: UserProfile) -> None:
    key = ApiKey.objects.issue("own", user=ada)[1]
    with Memory(url=site, key=key) as memory:
        assert memory.add("I keep bees.")["user_id"] == ada.user_id
        with pytest.raises(ValueError, match="needs a user_id"):
            memory.profile()


# --- failures ---


class _Flaky:
    """A proxy between a client and a site that loses or rejects requests as configured."""

    def __init__(self, site: str) -> None:
        flaky = self
        self.troubles: list[str] = []
        self.asked = 0

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                flaky.asked += 1
                body = self.rfile.read(int(self.headers["Content-Length"]))
                trouble = flaky.troubles.pop(0) if flaky.troubles else ""
                if trouble.isdigit():
                    self.send_response(int(trouble))
                    self.send_header("Retry-After", "0")
                    self.end_headers()
                    return
                headers = {name: self.headers[name] for name in ("Authorization", "Content-Type")}
                answer = httpx2.post(site + self.path, content=body, headers=headers)
                if trouble == "lost":
                    return  # the site has executed the request
                self.send_response(answer.status_code)
                self.send_header("Content-Type", answer.headers["Content-Type"])
                self.end_headers()
                self.wfile.write(answer.content)

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "_Flaky":
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def flaky(site: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Flaky]:
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.001)
    with _Flaky(site) as flaky:
        yield flaky


def test_messages_are_not_added_twice_if_the_response_is_lost(flaky: _Flaky, key: str) -> None:
    flaky.troubles = ["lost", "502", "429"]
    with Memory("ada", url=flaky.url, key=key) as memory:
        [message] = memory.add("I keep bees.")["messages"]
    assert (flaky.asked, message["created"]) == (4, False)
    assert Message.objects.count() == 1


def test_a_call_that_is_not_idempotent_is_only_retried_if_it_was_not_executed(flaky: _Flaky, key: str) -> None:
    with Memory("ada", url=flaky.url, key=key) as memory:
        memory.add("I keep bees.")
        flaky.troubles, flaky.asked = ["lost"], 0
        with pytest.raises(Unreachable):
            memory.build()
        assert flaky.asked == 1
        flaky.troubles = ["503"]  # the site has done nothing
        assert memory.build()["job_id"]


def test_the_client_gives_up_after_some_attempts_and_reports_why(flaky: _Flaky, key: str) -> None:
    flaky.troubles = ["502"] * 9
    with Memory("ada", client=Client(flaky.url, key, attempts=3)) as memory, pytest.raises(Refused, match="502"):
        memory.search("bees")
    assert flaky.asked == 3
    with (
        Memory("ada", url="http://127.0.0.1:1", key=key, attempts=2) as memory,
        pytest.raises(Unreachable, match="POST"),
    ):
        memory.search("bees")


def test_a_retry_does_not_wait_for_hours() -> None:
    asked_to_wait = httpx2.Response(429, headers={"Retry-After": "40000"})
    assert retries.pause_before(0, asked_to_wait, repeatable=True) is None
    soon = httpx2.Response(429, headers={"Retry-After": "2"})
    assert retries.pause_before(0, soon, repeatable=False) == 2


# --- source code ---


def test_the_blocking_client_is_current() -> None:
    assert blocking_client.MADE.read_text() == blocking_client.made(), "Run `make clients`."


@pytest.mark.slow
def test_the_client_imports_nothing_of_the_platform() -> None:
    asked = "import sys, memory_platform.client; sys.exit(bool({'django', 'pydantic', 'openai'} & set(sys.modules)))"
    found = {"PYTHONPATH": str(blocking_client.PACKAGE.parents[1]), "PATH": os.environ["PATH"]}
    subprocess.run([sys.executable, "-c", asked], env=found, check=True)


COMPONENTS = {
    answers.DueJob: "DueJobAnswer",
    answers.Appended: "AppendAnswer",
    answers.Message: "MessageAnswer",
    answers.Omitted: "OmittedAnswer",
    answers.Context: "ContextAnswer",
    answers.Ranks: "SearchRanks",
    answers.Result: "SearchResult",
    answers.Found: "SearchAnswer",
    answers.Span: "SearchSpan",
    answers.Moment: "MomentAnswer",
    answers.Moments: "MomentList",
    answers.Fact: "FactAnswer",
    answers.Facts: "FactList",
    answers.Correction: "CorrectionAnswer",
    answers.KnownPerson: "KnownPersonAnswer",
    answers.People: "KnownPersonList",
    answers.Profile: "ProfileAnswer",
    answers.Session: "SessionAnswer",
    answers.Sessions: "SessionList",
    answers.Job: "JobAnswer",
    answers.Erased: "ErasedAnswer",
}
TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


@pytest.mark.parametrize(
    "answer", [one for one in vars(answers).values() if is_typeddict(one)], ids=lambda one: one.__name__
)
def test_a_response_type_matches_the_schema(answer: Any) -> None:
    component = description()["components"]["schemas"][COMPONENTS.get(answer, answer.__name__)]
    told = component["properties"]
    differ = {name: told.get(name) for name, kind in _fields(answer).items() if not _fits(kind, told.get(name))}
    assert differ == {}
    assert answer.__required_keys__ <= set(component.get("required", []))


def _fields(answer: Any) -> dict[str, Any]:
    return get_type_hints(answer)


def _fits(kind: Any, told: dict[str, Any] | None) -> bool:
    """Return whether a type of the client matches the schema of a field."""
    if told is None:
        return False
    if kind is Any:
        return True
    told = _resolved(told)
    if isinstance(kind, UnionType):
        others = told.get("oneOf") or [told | {"type": one} for one in told["type"]]
        return len(get_args(kind)) == len(others) and all(
            any(_fits(part, other) for other in others) for part in get_args(kind)
        )
    if get_origin(kind) is Literal:
        return set(get_args(kind)) == set(told["enum"])
    if get_origin(kind) is list:
        return told["type"] == "array" and _fits(get_args(kind)[0], told["items"])
    if get_origin(kind) is dict or is_typeddict(kind):
        return bool(told["type"] == "object")
    return bool(told["type"] == TYPES[kind])


def _resolved(told: dict[str, Any]) -> dict[str, Any]:
    if "allOf" in told:
        [told] = told["allOf"]
    if "$ref" in told:
        told = description()["components"]["schemas"][told["$ref"].rpartition("/")[2]]
    return told
