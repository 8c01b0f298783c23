"""Once a caller has the end of an answer, its round is stored exactly once, even after kills and outages."""

import http.client
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import psutil
import psycopg
import pytest
from django.db import connection
from prometheus_client import REGISTRY
from pytest_django.fixtures import Settings

from moments_app.interfaces.chat.request import ChatSession, read_request
from moments_app.interfaces.chat.rounds import Round, replay_due
from sessions_app.models import Message, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.erase import erase_user
from sessions_app.transcript import spool
from sessions_app.transcript.spool import Spool
from tests.support import openai_server as behave
from tests.support.chat import Client, ask, database_away, stored, transcript
from tests.support.openai_server import OpenAIServer
from tests.support.processes import database_url, environment, web
from tests.support.waiting import TIMEOUT, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("spool_dir")]

COMMENT = b": X-Memory-Stored: spooled\n\n"
ANSWER = b'{"choices": [{"message": {"content": "Noted."}, "finish_reason": "stop"}]}'


class Call:
    """A streamed call in progress, on its own connection.

    Args:
        site: the base URL.
        key: the API key.
        session_id: the conversation. The person is ada.
        text: the message. By default the name of the conversation.
    """

    def __init__(self, site: str, key: str, session_id: str, text: str = "") -> None:
        self._connection = http.client.HTTPConnection(site.removeprefix("http://"), timeout=60)
        body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": text or session_id}]})
        named = {"Authorization": f"Bearer {key}", "X-User-Id": "ada", "X-Session-Id": session_id}
        self._connection.request("POST", "/v1/chat/completions", body, named)

    def begin(self) -> http.client.HTTPResponse:
        """Wait for the headers."""
        self.answer = self._connection.getresponse()
        return self.answer

    def read_until(self, text: bytes) -> bytes:
        """Read until the stream has contained this text."""
        data = b""
        while text not in data:
            part = self.answer.read1()
            assert part, data
            data += part
        return data

    def read(self) -> bytes:
        """Read to the end."""
        return self.answer.read()


@contextmanager
def locked(*session_ids: str) -> Iterator[None]:
    """Lock the rows of sessions, so that no turn can be stored in them."""
    with psycopg.connect(database_url()) as other:
        other.execute("SELECT 1 FROM sessions_app_session WHERE session_id = ANY(%s) FOR UPDATE", [[*session_ids]])
        yield


def marks() -> dict[str, str]:
    """Return the content of incomplete turns with the reason."""
    turns = Message.objects.turns()
    return {turn.content: turn.metadata["incomplete"] for turn in turns if "incomplete" in turn.metadata}


def the_round(text: str = "Hello", session_id: str = "s1", answer: bytes = ANSWER) -> Round:
    """Return a round that has been answered, but is neither stored nor spooled."""
    request = read_request(json.dumps({"messages": [{"role": "user", "content": text}]}).encode())
    said = Round(ChatSession("ada", session_id), request.turns)
    said.set_response(200, is_stream=False)
    said.add_part(answer)
    said.end("")
    return said


def left(said: Round, *records: dict[str, Any]) -> None:
    """Leave a round in the spool, as a killed process does."""
    part = {"part": said.received.decode("latin-1")}
    file = Spool.create(said.session.user_id, said.session.session_id, said.first_record(), application=DEFAULT)
    for record in records or ({"status": said.status}, part, {"incomplete": ""}):
        file.add(record)
    file.release()


# --- messages and outcomes ---


def test_row_27_the_message_is_stored_before_the_upstream_is_called(client: Client, upstream: OpenAIServer) -> None:
    upstream.hold()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ask, client(), "Hello")
        upstream.wait_for_held(1)
        assert transcript() == [("user", "Hello")]
        upstream.release()
        asked.result()
    assert transcript() == [("user", "Hello"), ("assistant", "Noted.")]
    ids = [turn.external_id or "" for turn in Message.objects.turns().in_order()]
    assert [text.rpartition(":")[2] for text in ids] == ["0", "answer"]
    assert spool.orphan_count() == 0


@pytest.mark.parametrize("stream", [True, False])
def test_a_header_reports_whether_the_message_was_stored(client: Client, upstream: OpenAIServer, stream: bool) -> None:
    upstream.always(behave.streamed("Noted.") if stream else behave.content("Noted."))
    asking = client().chat.completions.with_raw_response.create(
        model="m", messages=[{"role": "user", "content": "Hello"}], stream=stream
    )
    assert asking.headers["X-Memory-Stored"] == "stored"
    if stream:
        list(asking.parse())
    answer = Message.objects.get(role="assistant")
    assert answer.external_id == f"{asking.headers['X-Memory-Round']}:answer"


def test_the_message_of_a_rejected_call_is_stored_and_marked(client: Client, upstream: OpenAIServer) -> None:
    upstream.queue(behave.error(400))
    with pytest.raises(openai.BadRequestError):
        ask(client(), "Hello")
    assert transcript() == [("user", "Hello")]
    assert marks() == {"Hello": "refused"}
    ask(client(), "Hello")
    assert transcript() == [("user", "Hello"), ("assistant", "Noted.")]


def test_an_answer_that_the_caller_sent_back_is_not_stored_twice(client: Client) -> None:
    said = the_round()
    said.stored_messages = said.store_messages()
    history: list[Any] = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Noted."}]
    ask(client(), *history, "And now?")
    said.store()
    assert [content for _, content in transcript()] == ["Hello", "Noted.", "And now?", "Noted."]


def test_concurrent_rounds_with_equal_answers_are_all_stored(client: Client, upstream: OpenAIServer) -> None:
    upstream.hold()
    with ThreadPoolExecutor(3) as pool:
        for number in range(3):
            pool.submit(ask, client(), f"Question {number}")
        upstream.wait_for_held(3)
        upstream.release()
    assert sorted(transcript())[:3] == [("assistant", "Noted.")] * 3
    assert len(transcript()) == 6


def test_repeated_storing_adds_nothing(ada: UserProfile) -> None:
    whole, begun = the_round("One"), the_round("Two")
    begun.stored_messages = begun.store_messages()
    begun.store_messages()  # repeated by a thread that no request waits for
    for said in (whole, whole, begun, begun):
        assert said.store()
    whole.store_messages()
    assert [content for _, content in transcript()] == ["Two", "One", "Noted.", "Noted."]


def test_a_round_is_dropped_with_its_session(ada: UserProfile) -> None:
    said = the_round()
    said.stored_messages = said.store_messages()
    Session.objects.all().delete()
    assert not said.store()
    assert not Session.objects.exists()


# --- kills ---


@pytest.mark.slow(seconds=15)
def test_row_27_rounds_of_a_killed_process_are_stored_at_the_next_start(
    key: str, upstream: OpenAIServer, tmp_path: Path
) -> None:
    """Kill the server during five rounds: one is stored completely, one has no answer yet, one is within its answer,
    one has sent its end and waits in the spool, and the end of one is being stored.
    """
    may_end = {name: threading.Event() for name in ("within", "ended", "ending")}
    over = threading.Event()

    def by_text(handler: behave.Handler, body: dict[str, Any]) -> None:
        name = body["messages"][-1]["content"]
        if name == "before":
            over.wait(TIMEOUT)

        def end(*asked: Any) -> None:
            assert name not in may_end or may_end[name].wait(TIMEOUT)
            handler.end_stream()

        behave.streamed(f"Answer {name}.", end=end)(handler, body)

    upstream.always(by_text)
    own = environment(
        CHAT__UPSTREAM_BASE_URL=upstream.base_url,
        CHAT__MEMORY_TIMEOUT_SECONDS="60",
        DATA_DIR=str(tmp_path),
    )
    with web(**own) as url:
        calls = {name: Call(url, key, name) for name in ("after", "before", *may_end)}
        assert b"[DONE]" in calls["after"].begin().read()
        assert stored(2, "after")
        for name in may_end:
            assert calls[name].begin().headers["X-Memory-Stored"] == "stored"
            calls[name].read_until(f"Answer {name}.".encode())
        wait_until(lambda: transcript(session_id="before") == [("user", "before")])
        with locked("ended", "ending"):
            may_end["ended"].set()
            assert calls["ended"].read().endswith(COMMENT + b"data: [DONE]\n\n")
            may_end["ending"].set()
            calls["ending"].read_until(b'"finish_reason": "stop"')
            kill(url)
    over.set()
    assert spool.orphan_count() == 4
    with web(**own):
        wait_until(lambda: not [*(tmp_path / "spool").iterdir()])  # rounds being stored don't wait, and are stored
    for name in calls:
        told = [("user", name)] if name == "before" else [("user", name), ("assistant", f"Answer {name}.")]
        assert transcript(session_id=name) == told
    assert marks() == {"before": "interrupted", "Answer within.": "interrupted"}


def kill(url: str) -> None:
    """Kill a web server with SIGKILL before its workers, because it would restart them."""
    port = url.rpartition(":")[2]
    for process in psutil.Process().children():
        if any(argument.endswith(f":{port}") for argument in process.cmdline()):
            workers = process.children(recursive=True)
            for one in (process, *workers):
                one.kill()
            psutil.wait_procs(workers, timeout=TIMEOUT)


# --- an unavailable database ---


def test_row_27_an_answer_that_ends_while_the_database_is_unavailable_is_stored_later(
    site: str, key: str, upstream: OpenAIServer
) -> None:
    may_end = threading.Event()

    def end(handler: behave.Handler, body: dict[str, Any]) -> None:
        assert may_end.wait(60)
        handler.end_stream()

    upstream.always(behave.streamed("Noted.", end=end))
    call = Call(site, key, "s1", "Hello")
    call.begin()
    call.read_until(b"Noted.")
    with database_away():
        may_end.set()
        assert call.read().endswith(COMMENT + b"data: [DONE]\n\n")
        assert spool.orphan_count() == 1
    assert stored(2) == [("user", "Hello"), ("assistant", "Noted.")]
    wait_until(lambda: spool.orphan_count() == 0)


def test_row_27_a_round_waits_in_the_spool_while_the_database_is_unavailable(
    site: str, key: str, upstream: OpenAIServer, capfd: pytest.CaptureFixture[str]
) -> None:
    upstream.always(behave.streamed("SECRET answer."))
    Call(site, key, "s0", "Hello").begin().read()
    with database_away():
        call = Call(site, key, "s1", "SECRET question")
        assert call.begin().headers["X-Memory-Stored"] == "spooled"
        assert COMMENT not in call.read()
    assert stored(2) == [("user", "SECRET question"), ("assistant", "SECRET answer.")]
    assert "SECRET" not in str(capfd.readouterr())


def test_a_call_follows_the_waiting_rounds_of_its_conversation(client: Client, upstream: OpenAIServer) -> None:
    left(the_round("Before"))
    ask(client(), "After")
    assert [content for _, content in transcript()] == ["Before", "Noted.", "After", "Noted."]
    assert "Before" in json.dumps(upstream.requests[0])


# --- a full disk ---


def not_spooled() -> float:
    return REGISTRY.get_sample_value("memory_chat_failures_total", {"what": "spool"}) or 0


def test_without_a_spool_rounds_are_stored_in_the_database(client: Client, settings: Settings, tmp_path: Path) -> None:
    settings.SPOOL_DIR = tmp_path / "file" / "spool"
    settings.SPOOL_DIR.parent.touch()
    before = not_spooled()
    ask(client(), "Hello")
    assert len(transcript()) == 2
    assert not_spooled() == before + 1


def test_a_message_that_cannot_be_stored_is_reported_and_retried(
    site: str, key: str, upstream: OpenAIServer, settings: Settings, tmp_path: Path
) -> None:
    upstream.always(behave.streamed("Noted."))
    Call(site, key, "s0", "Hello").begin().read()
    settings.SPOOL_DIR = tmp_path / "file" / "spool"
    settings.SPOOL_DIR.parent.touch()
    with database_away():
        call = Call(site, key, "s1", "Hello")
        assert call.begin().headers["X-Memory-Stored"] == "unstored"
        call.read()
    assert len(stored(2)) == 2


# --- replay ---


def test_row_27_two_concurrent_replays_store_each_round_once(ada: UserProfile) -> None:
    for number in range(8):
        left(the_round(f"Question {number}"))
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(replay_and_close) for _ in range(2)]:
            done.result()
    said = [content for role, content in transcript() if role == "user"]
    assert sorted(said) == [f"Question {number}" for number in range(8)]
    assert (len(transcript()), spool.orphan_count()) == (16, 0)


def replay_and_close() -> None:
    try:
        replay_due()
    finally:
        connection.close()


def test_an_unreadable_round_does_not_block_others(ada: UserProfile, settings: Settings) -> None:
    left(the_round("One"))
    [path] = spool.orphans()
    path.with_name(f"0{path.name}").write_text("SECRET\n")
    replay_due()
    assert len(transcript()) == 2
    assert [file.read_text() for file in spool.orphans()] == ["SECRET\n"]


# --- erasure ---


def test_row_11_an_erasure_deletes_spooled_rounds(ada: UserProfile, bo: UserProfile, settings: Settings) -> None:
    said = the_round("SECRET")
    said.stored_messages = said.store_messages()
    left(said)
    left(the_round("SECRET", "s2"))
    assert spool.orphan_count() == 2
    erase_user("ada", application=DEFAULT, actor="test")
    assert list(settings.SPOOL_DIR.iterdir()) == []


def test_row_11_another_host_drops_its_spooled_rounds_of_an_erased_person(
    ada: UserProfile, settings: Settings, tmp_path: Path
) -> None:
    begun, unbegun = the_round("SECRET"), the_round("SECRET", "s2")
    begun.stored_messages = begun.store_messages()
    left(begun)
    left(unbegun)
    own, settings.SPOOL_DIR = settings.SPOOL_DIR, tmp_path / "elsewhere"
    erase_user("ada", application=DEFAULT, actor="test")
    settings.SPOOL_DIR = own
    replay_due()
    assert list(own.iterdir()) == []
    assert not UserProfile.objects.exists()
    assert not Message.objects.exists()


def test_a_new_person_is_stored_when_the_database_is_back(transactional_db: None) -> None:
    left(the_round())
    replay_due()
    assert len(transcript()) == 2
