"""The trace of one call: what the model saw, what it would see now, and what the round led to."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse
from pytest_django.fixtures import Settings

from memoryproject.conf import ChatSettings
from moments_app.context import receipts
from moments_app.models import ContextReceipt, EngineCall, Entity, Job, MemoryStream, Moment
from sessions_app.models import Message, Session, UserProfile
from sessions_app.retention.retain import retain
from sessions_app.transcript.append import NewMessage, append
from tests.support.api import Api
from tests.support.entities import make_entity, new_entity
from tests.support.jobs import build
from tests.support.openai_server import OpenAIServer, content, error
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, PLANTED, change_url, page, queries_of
from tests.support.retention import covered_session
from tests.support.streams import note
from tests.support.transcript import talk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("kept_receipts")]

QUESTION, ANSWER = "Which felt do I order?", "The red one, of 3 mm."


def url(session: Session) -> str:
    return reverse("admin:sessions_app_session_trace", args=[session.pk])


def asked(service: Api, session_id: str = "s1", **fields: Any) -> Session:
    """Request a context, then store question and answer with its id, as an application does."""
    found = service.get("memory/context", user_id="ada", session_id=session_id, query=QUESTION).json()
    said = [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}]
    body = {"user_id": "ada", "messages": said, "context_id": found["context_id"]} | fields
    assert service.post(f"sessions/{session_id}/messages", body).status_code == 201
    receipts.waiting.flush()
    return Session.objects.get(session_id=session_id)


def lines(shown: str, *whens: str) -> str:
    """Return the lines of the page that were in the context at these times."""
    found = list(re.finditer(r'<li class="rem-turn rem-when-(\w+).*?</li>', shown, re.DOTALL))
    assert found
    return "".join(match[0] for match in found if match[1] in whens)


def tokens(when: str, shown: list[str]) -> list[int]:
    """Return the tokens of one of the contexts, from texts such as "12 tokens then, 15 now"."""
    return [int(match[1]) for text in shown if (match := re.search(rf"(\d+)(?: tokens)? {when}", text))]


def test_the_served_context_the_current_context_and_the_difference_are_shown(
    root: Client, service: Api, ada: UserProfile
) -> None:
    entity = make_entity(ada, "Order the felt")
    talk(ada, 4)
    session = asked(service)
    Entity.objects.all().delete()
    make_entity(ada, "Sell the kiln")
    shown = page(root, url(session), turn=5)
    assert "Order the felt" in lines(shown, "then") and entity.uri in lines(shown, "then")
    assert "Sell the kiln" in lines(shown, "now") and "Sell the kiln" not in lines(shown, "then", "same")
    assert "Turn 3 is about" in lines(shown, "same")
    assert "The difference (lines marked “only then”: 1, “only now”: 1)" in shown
    assert "tokens then" in shown and "did not report which context" not in shown


def test_tokens_of_lines_markup_and_layers_add_up(root: Client, service: Api, ada: UserProfile) -> None:
    make_entity(ada, "Order the felt")
    talk(ada, 4)
    session = asked(service)
    Entity.objects.all().delete()
    shown = page(root, url(session), turn=5)
    for when in ("then", "now"):
        sizes = []
        for layer in re.findall(r'<section class="rem-traced".*?</section>', shown, re.DOTALL):
            [size] = tokens(when, re.findall(r'<span class="rem-chip">(.*?)</span>', layer))
            markup = tokens(when, re.findall(r"Headings and markup of this layer: (.*?)</p>", layer))
            own = re.findall(r"<span>(\d+) tokens</span>", lines(layer, "same", when))
            assert sum(map(int, own)) + sum(markup) == size
            sizes.append(size)
        assert len(sizes) >= 4
        [whole] = tokens(when, re.findall(r'<h2 id="rem-saw">(.*?)</h2>', shown))
        assert sum(sizes) + sum(tokens(when, re.findall(r"Markup around the layers: (.*?)</p>", shown))) == whole


@pytest.mark.slow
def test_the_memory_of_another_day_can_be_compared_and_links_keep_the_day(
    root: Client, service: Api, ada: UserProfile
) -> None:
    talk(ada, 4)  # on 2 March
    session = asked(service)
    shown = page(root, url(session), turn=5, as_of="2026-03-01")
    assert "Turn 3 is about" in lines(shown, "then")
    assert "with the memory of 2026-03-01" in shown and f"{change_url(ada)}?as_of=2026-03-01" in shown
    assert "Turn 3 is about" in lines(page(root, url(session), turn=5, as_of="2026-03-02"), "same")


@pytest.mark.slow
def test_a_round_of_an_archived_session_can_be_traced(root: Client, ada: UserProfile, archive_folder: Path) -> None:
    session = covered_session(ada, 8)
    assert retain().archived_turns == 8
    shown = page(root, url(session), turn=2)
    assert "Turn 2 🏺" in shown and "Turn 3 🏺" in shown and "Turn 4 🏺" not in shown
    assert change_url(Moment.objects.get()) in shown
    assert queries_of(root, f"{url(session)}?turn=2") <= MAX_QUERIES
    preview = page(root, reverse("admin:sessions_app_session_context", args=[session.pk]), turn=3)
    assert "Turn 2 🏺" in preview and "Turn 3 🏺" not in preview


def test_the_question_occurs_once_and_the_answer_never(root: Client, service: Api, ada: UserProfile) -> None:
    talk(ada, 4)
    session = asked(service)
    append(ada, "s1", [NewMessage("user", "And the glue?"), NewMessage("assistant", "Hide glue.")])
    shown = page(root, url(session), turn=5)
    seen = lines(shown, "same", "then", "now")
    assert seen.count(QUESTION) == 1 and ANSWER not in seen and "glue" not in seen
    preview = page(root, reverse("admin:sessions_app_session_context", args=[session.pk]), turn=5)
    assert ANSWER not in preview and "glue" not in preview


@pytest.mark.slow
def test_every_turn_of_a_round_links_to_its_trace(root: Client, service: Api, ada: UserProfile) -> None:
    talk(ada, 4)
    session = asked(service)
    transcript = page(root, change_url(session))
    for turn in (4, 5):
        assert f"{url(session)}?turn={turn}" in transcript
        shown = page(root, url(session), turn=turn)
        assert shown.count(ANSWER) == 1 and "tokens then" in shown
    receipt = page(root, change_url(ContextReceipt.objects.get()))
    assert f"{url(session)}?turn=5" in receipt


def test_a_context_of_another_session_or_no_session_is_rejected(service: Api, ada: UserProfile) -> None:
    talk(ada, 2), talk(ada, 2, session_id="s2")
    other = service.get("memory/context", user_id="ada", session_id="s2").json()["context_id"]
    said = [{"role": "assistant", "content": "Yes."}]
    for context_id in (other, str(uuid4())):
        refused = service.post("sessions/s1/messages", user_id="ada", messages=said, context_id=context_id)
        assert (refused.status_code, refused.json()["errors"][0]["code"]) == (400, "unknown_context")
    asking = [{"role": "user", "content": "Yes?"}]
    wrong = service.post("sessions/s2/messages", user_id="ada", messages=asking, context_id=other)
    assert wrong.json()["errors"][0]["attr"] == "context_id"
    assert Message.objects.count() == 4


@pytest.mark.slow
def test_without_a_named_context_the_latest_earlier_one_is_shown(root: Client, service: Api, ada: UserProfile) -> None:
    session = talk(ada, 4)
    asked(service, context_id=None)
    shown = page(root, url(session), turn=5)
    assert "tokens then" in shown and "did not report which context" in shown
    assert "No context was served for this answer" in page(root, url(session), turn=1)


@pytest.mark.slow
def test_an_expired_context_is_reported(root: Client, service: Api, ada: UserProfile) -> None:
    talk(ada, 4)
    session = asked(service)
    ContextReceipt.objects.update(sealed=b"not sealed")
    shown = page(root, url(session), turn=5)
    assert "be read: it was served" in shown and "tokens now" in shown
    ContextReceipt.objects.all().delete()
    assert "no longer stored" in page(root, url(session), turn=5)


def test_the_first_answer_of_a_new_session_says_why_its_context_is_not_stored(
    root: Client, service: Api, ada: UserProfile
) -> None:
    session = asked(service)
    reason = "Contexts requested before the session's first message are not stored."
    assert reason in page(root, url(session), turn=1)
    asked(service)
    ContextReceipt.objects.all().delete()
    assert reason not in page(root, url(session), turn=3)


def test_row_11_a_dump_of_a_stored_context_reveals_nothing(service: Api, ada: UserProfile) -> None:
    make_entity(ada, "Order the felt")
    talk(ada, 4)
    asked(service)
    sealed = bytes(ContextReceipt.objects.get().sealed or b"")
    assert len(sealed) > 100 and b"felt" not in sealed


@pytest.mark.slow
def test_subsequent_jobs_moments_and_facts_are_shown_with_their_cost(
    root: Client, service: Api, ada: UserProfile
) -> None:
    talk(ada, 30)
    session = asked(service)
    job = build(session)
    EngineCall.objects.create(
        job=job, purpose="moment-builder", engine="openai:m", latency_ms=1, ok=True, cost_usd="0.25"
    )
    turn = session.messages.get(sequence=31)
    stream = MemoryStream.objects.create(stream_type="user", agent_id="default", user=ada)
    atom = note(stream, "Orders red felt.", "fact", source_session=session, source_message_ids=[turn.pk])
    shown = page(root, url(session), turn=31)
    assert change_url(atom) in shown and change_url(job) in shown and "0.250000 USD" in shown
    built = session.messages.exclude(moment=None).first()
    assert built is not None and built.moment is not None
    assert change_url(built.moment) in page(root, url(session), turn=built.sequence)


@pytest.mark.slow
def test_the_page_takes_a_constant_number_of_queries(root: Client, service: Api, ada: UserProfile) -> None:
    talk(ada, 4)
    few = queries_of(root, f"{url(asked(service))}?turn=5")
    Entity.objects.bulk_create(new_entity(ada, f"Task {number}") for number in range(30))
    build(talk(ada, 120))
    many = queries_of(root, f"{url(asked(service))}?turn=127")
    assert few <= MAX_QUERIES and many <= MAX_QUERIES
    assert queries_of(root, url(Session.objects.get())) <= MAX_QUERIES


def test_row_18_planted_scripts_stay_text(root: Client, service: Api, ada: UserProfile) -> None:
    make_entity(ada, PLANTED)
    append(ada, "s1", [NewMessage("user", PLANTED), NewMessage("assistant", PLANTED, metadata={"model": PLANTED})])
    asked(service)
    shown = page(root, url(Session.objects.get()), turn=3) + page(root, url(Session.objects.get()), turn=1)
    assert "planted" in shown and PLANTED not in shown


def test_an_empty_session_has_no_trace(root: Client, ada: UserProfile) -> None:
    session = Session.objects.create(user=ada, session_id="s1")
    assert "This session has no messages yet." in page(root, url(session))
    assert Job.objects.count() == 0


def test_the_context_of_a_new_session_is_recorded_with_its_first_answer(service: Api) -> None:
    context_id = service.get("memory/context", user_id="new", session_id="s1").json()["context_id"]
    said = [{"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Hello."}]
    answer = service.post("sessions/s1/messages", user_id="new", messages=said, context_id=context_id)
    assert answer.status_code == 201, answer.content
    assert Message.objects.get(role="assistant").metadata["context_id"] == context_id


class TestAskingAgain:
    """Call the upstream again, without the selected lines."""

    @pytest.fixture
    def upstream(self, settings: Settings) -> Iterator[OpenAIServer]:
        with OpenAIServer() as server:
            server.always(content("I don't know."))
            settings.CHAT = ChatSettings(upstream_base_url=server.base_url)
            yield server

    @pytest.mark.slow
    def test_the_remaining_lines_are_sent_and_both_answers_are_compared(
        self, root: Client, service: Api, ada: UserProfile, upstream: OpenAIServer
    ) -> None:
        make_entity(ada, "Order the felt")
        talk(ada, 4)
        session = asked(service)
        shown = page(root, f"{url(session)}?turn=5")
        assert "Ask again" in shown and 'value="entities:0"' in shown
        answer = root.post(f"{url(session)}?turn=5", {"model": "test-model", "line": ["entities:0"]})
        [sent] = upstream.requests
        memory, question = sent["messages"]
        assert "Order the felt" not in memory["content"] and "Turn 3 is about" in memory["content"]
        assert question == {"role": "user", "content": QUESTION}
        told = answer.content.decode()
        assert "without 1 line" in told and "know." in told and "<del>" in told
        assert EngineCall.objects.get().purpose == "try trace"
        assert session.messages.count() == 6

    def test_an_error_of_the_upstream_is_shown(
        self, root: Client, service: Api, ada: UserProfile, upstream: OpenAIServer
    ) -> None:
        talk(ada, 4)
        session = asked(service)
        upstream.always(error(500))
        shown = root.post(f"{url(session)}?turn=5", {"model": "m"}).content.decode()
        assert "answered with status 500" in shown

    @pytest.mark.slow
    def test_asking_again_requires_the_right_to_change_sessions_and_an_upstream(
        self, root: Client, service: Api, ada: UserProfile, upstream: OpenAIServer, settings: Settings
    ) -> None:
        talk(ada, 4)
        session = asked(service)
        reader = operator("view_", "preview_context")
        assert "Ask again" not in page(reader, url(session), turn=5)
        assert reader.post(f"{url(session)}?turn=5", {"model": "m"}).status_code == 403
        settings.CHAT = ChatSettings()
        assert "Ask again" not in page(root, url(session), turn=5)
        assert "no chat model is configured" in root.post(f"{url(session)}?turn=5", {"model": "m"}).content.decode()
        assert upstream.requests == []
