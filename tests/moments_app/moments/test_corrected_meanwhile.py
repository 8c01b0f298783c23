"""A fact is corrected, or a turn retracted, while an engine works: nothing derived from the old text is stored."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from moments_app.jobs.runner import run_job
from moments_app.models import Correction, Job, MemoryAtom, MemoryStream, Moment, Summary
from moments_app.provenance.correct import correct, replacement_request, undo_correction, withdrawal_request
from moments_app.provenance.retract import retract
from moments_app.provenance.undo import undo_retraction
from sessions_app.models import Message, Session, UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support import openai_server as behave
from tests.support.api import Api
from tests.support.concurrency import on_its_own_connection, wait_until_somebody_waits
from tests.support.jobs import build, work_off
from tests.support.openai_server import OpenAIServer
from tests.support.streams import note
from tests.support.transcript import arrived_when_said, talk, turns

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

SAID = "My daughter is called Maya."


def daughter(user: UserProfile) -> MemoryAtom:
    """Create a fact from the first turn of a session."""
    at = datetime(2025, 1, 20, tzinfo=UTC)
    said = [NewMessage("user", SAID, created_at=at), NewMessage("assistant", "A lovely name.", created_at=at)]
    session = arrived_when_said(append(user, "s1", said).session)
    sources = {"source_session": session, "source_message_ids": [session.messages.earliest("sequence").pk]}
    return note(MemoryStream.objects.ensure_of_person(user, "default"), f"User: {SAID}", "fact", **sources)


def run(process: str, session: Session) -> Job:
    params = {"lag": 0} if process == "build_moments" else {}
    asked = Job.objects.request(process, session, requested_by="test", force=True, params=params)
    job = run_job(asked.job_id)
    assert job is not None
    return job


def fix(fact: MemoryAtom) -> Correction:
    return correct(fact, replacement_request("User: My daughter is called Mia."), requested_by="test")


def correct_meanwhile(model: OpenAIServer, fact: MemoryAtom) -> None:
    """Correct the fact while the model answers the next request."""

    def meanwhile(handler: behave.Handler, body: dict[str, Any]) -> None:
        on_its_own_connection(fix, fact)
        behave.answer_well(handler, body)

    model.queue(meanwhile)


@pytest.mark.parametrize("process", ["build_moments", "settle"])
def test_row_2_a_journey_contains_no_summary_that_was_corrected_during_the_job(
    ada: UserProfile, model_server: OpenAIServer, process: str
) -> None:
    fact = daughter(ada)
    build(Session.objects.get(), lag=0)
    Moment.objects.update(summary="Ada tells that their daughter is called Maya.")
    later = talk(ada, 20, session_id="s2")
    correct_meanwhile(model_server, fact)
    job = run(process, later)
    assert (job.status, "Moments that the engine received were changed" in job.error) == ("queued", True)
    work_off()
    told = [moment.journey for moment in later.moments.all() if moment.journey]
    told += [str(event.payload) for event in Message.objects.partitions().filter(session=later)]
    assert told and any("Mia" in text for text in told) and not any("Maya" in text for text in told)


@pytest.mark.parametrize("process", ["build_moments", "settle", "rebuild_moments", "digest_session", "roll_summary"])
def test_row_2_turns_that_were_corrected_during_the_job_are_read_again(
    ada: UserProfile, model_server: OpenAIServer, process: str
) -> None:
    fact = daughter(ada)
    session = Session.objects.get()
    if process == "rebuild_moments":
        build(session, lag=0)
        Moment.objects.update(summary="Ada tells of a child.", detail="")
    correct_meanwhile(model_server, fact)
    job = run(process, session)
    assert (job.status, job.error) == ("queued", "Facts were corrected while the engine was working.")
    model_server.requests.clear()
    work_off()
    read = [turn["text"] for body in model_server.requests if "input" not in body for turn in behave.turns_of(body)]
    assert "My daughter is called Mia." in read and SAID not in read


@pytest.fixture
def quoting_server(model_server: OpenAIServer) -> OpenAIServer:
    """A model whose digests quote all turns."""

    def quote(handler: behave.Handler, body: dict[str, Any]) -> None:
        answer = behave.right_answer(body)
        if "context" in answer:
            answer["context"] += " ".join(["", *(turn["text"] for turn in behave.turns_of(body))])
        handler.complete(json.dumps(answer))

    model_server.always(quote)
    return model_server


def held_until(change: Callable[[], Any], process: str, session: Session, model: OpenAIServer) -> Job:
    """Make a change while a job's call is in flight, and let the model answer after the change is committed."""
    model.hold()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(on_its_own_connection, run, process, session)
        try:
            model.wait_for_held(1)
            change()
        finally:
            model.release()
        job: Job = running.result()
    return job


def left() -> str:
    """Return the digests, the summaries and the lessons."""
    digests = Message.objects.partitions().values_list("content", flat=True)
    summaries = Summary.objects.completed().values_list("text", "facts")
    lessons = MemoryAtom.objects.filter(kind="lesson").values_list("content", flat=True)
    return str([*digests, *summaries, *lessons])


@pytest.mark.parametrize("process", ["digest_session", "roll_summary"])
def test_a_digest_or_summary_in_flight_does_not_restore_what_was_corrected(
    ada: UserProfile, quoting_server: OpenAIServer, process: str
) -> None:
    fact, session = daughter(ada), Session.objects.get()
    job = held_until(lambda: fix(fact), process, session, quoting_server)
    assert (job.status, "Maya" in left()) == ("queued", False)
    work_off()
    assert ("Mia" in left(), "Maya" in left()) == (True, False)


@pytest.mark.parametrize("process", ["digest_session", "roll_summary"])
def test_a_digest_or_summary_waits_for_a_correction_that_is_not_committed_yet(
    ada: UserProfile, quoting_server: OpenAIServer, process: str
) -> None:
    fact, session = daughter(ada), Session.objects.get()
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            fix(fact)
            running = pool.submit(on_its_own_connection, run, process, session)
            wait_until_somebody_waits()
        assert running.result().status == "queued"
    work_off()
    assert ("Mia" in left(), "Maya" in left()) == (True, False)


@pytest.mark.parametrize("process", ["digest_session", "roll_summary"])
def test_a_digest_or_summary_in_flight_reads_the_turns_again_if_a_correction_is_undone(
    ada: UserProfile, quoting_server: OpenAIServer, process: str
) -> None:
    correction, session = fix(daughter(ada)), Session.objects.get()
    job = held_until(lambda: undo_correction(correction, requested_by="test"), process, session, quoting_server)
    assert (job.status, "Mia" in left()) == ("queued", False)
    work_off()
    assert ("Maya" in left(), "Mia" in left()) == (True, False)


@pytest.mark.parametrize("process", ["digest_session", "roll_summary"])
def test_a_digest_or_summary_in_flight_does_not_restore_what_was_retracted(
    ada: UserProfile, quoting_server: OpenAIServer, process: str
) -> None:
    daughter(ada)
    session = Session.objects.get()
    held_until(lambda: retract(session, [0], reason="test", requested_by="test"), process, session, quoting_server)
    work_off()
    assert ("lovely" in left(), "Maya" in left()) == (True, False)


@pytest.mark.parametrize("process", ["digest_session", "roll_summary"])
def test_a_digest_or_summary_that_continues_another_reads_it_as_corrected(
    ada: UserProfile, quoting_server: OpenAIServer, process: str
) -> None:
    fact, session = daughter(ada), Session.objects.get()
    run(process, session)
    assert "Maya" in left()
    append(ada, "s1", turns(4, first=2))
    fix(fact)
    quoting_server.requests.clear()
    run(process, session)
    [asked] = [body["messages"][1]["content"] for body in quoting_server.requests]
    assert ("Mia" in asked, "Maya" in asked) == (True, False)


@pytest.mark.parametrize("process", ["digest_session", "roll_summary"])
def test_row_2_a_digest_or_summary_that_continues_another_reads_no_undone_correction(
    ada: UserProfile, quoting_server: OpenAIServer, process: str
) -> None:
    correction, session = fix(daughter(ada)), Session.objects.get()
    run(process, session)
    assert "Mia" in left()
    append(ada, "s1", turns(4, first=2))
    undo_correction(correction, requested_by="test")
    assert ("Maya" in left(), "Mia" in left()) == (True, False)
    quoting_server.requests.clear()
    run(process, session)
    [asked] = [body["messages"][1]["content"] for body in quoting_server.requests]
    assert ("Maya" in asked, "Mia" in asked) == (True, False)


def test_row_2_a_moment_built_between_a_correction_and_its_undo_has_the_original_words(ada: UserProfile) -> None:
    correction, session = fix(daughter(ada)), Session.objects.get()
    append(ada, "s1", turns(4, first=2))
    run("build_moments", session)
    assert "Mia" in Moment.objects.get().detail
    undo_correction(correction, requested_by="test")
    assert ("Maya" in Moment.objects.get().detail, "Mia" in Moment.objects.get().detail) == (True, False)


@pytest.mark.parametrize(("process", "layer"), [("digest_session", "moments"), ("roll_summary", "summary")])
def test_row_2_a_context_has_a_digest_or_summary_as_corrected(
    ada: UserProfile, quoting_server: OpenAIServer, service: Api, process: str, layer: str
) -> None:
    def names() -> set[str]:
        answer = service.get("memory/context", user_id=ada.user_id, session_id="s1", layers=layer).json()
        [text] = [str(one["items"]) for one in answer["layers"] if one["name"] == layer]
        return {name for name in ("Maya", "Mia") if name in text}

    fact, session = daughter(ada), Session.objects.get()
    run(process, session)
    assert names() == {"Maya"}
    right = {"user_id": ada.user_id, "content": "User: My daughter is called Mia."}
    made = service.patch(f"facts/{fact.atom_id}", **right).json()
    assert names() == {"Mia"}
    service.post(f"corrections/{made['correction_id']}/undo", user_id=ada.user_id)
    assert names() == {"Maya"}


@pytest.mark.parametrize("process", ["digest_session", "roll_summary", "build_moments"])
def test_row_2_a_text_restored_from_a_retraction_has_the_corrections_since(
    ada: UserProfile, quoting_server: OpenAIServer, process: str
) -> None:
    fact, session = daughter(ada), Session.objects.get()
    append(ada, "s1", turns(4, first=2))
    run(process, session)
    retraction = retract(session, [4], reason="test", requested_by="test")
    fix(fact)
    undo_retraction(retraction, requested_by="test")
    texts = left() + str(Moment.objects.values_list("detail", flat=True))
    assert ("Mia" in texts, "Maya" in texts) == (True, False)


def test_row_2_a_withdrawal_empties_a_digest_and_its_undo_restores_it(
    ada: UserProfile, quoting_server: OpenAIServer
) -> None:
    fact, session = daughter(ada), Session.objects.get()
    retract(session, [1], reason="test", requested_by="test")
    run("digest_session", session)
    contents = Message.objects.partitions().values_list("content", "payload__context")
    before = contents.get()
    correction = correct(fact, withdrawal_request(), requested_by="test")
    assert "Maya" in before[1] and "Maya" not in contents.get()[1]
    undo_correction(correction, requested_by="test")
    assert contents.get() == before


def summary(session: Session, text: str, *facts: str) -> Summary:
    """Create a version of a session's summary."""
    return Summary.objects.create(
        session=session,
        user=session.user,
        status=Summary.Status.COMPLETED,
        start_sequence=0,
        end_sequence=1,
        text=text,
        facts=[{"fact": fact, "message_indexes": [0]} for fact in facts],
        completed_at=timezone.now(),
    )


def cat(user: UserProfile, session: Session) -> MemoryAtom:
    sources = {"source_session": session, "source_message_ids": [session.messages.earliest("sequence").pk]}
    stream = MemoryStream.objects.ensure_of_person(user, "default")
    return note(stream, "User: My cat is called Otto.", "fact", **sources)


def test_a_correction_leaves_unrelated_lines_as_they_are(ada: UserProfile) -> None:
    fact, session = daughter(ada), Session.objects.get()
    text = "## Plan\n\nThe kiln is hot.\n\n- glaze\n  - red\n  - Their daughter is called Maya.\n\nEnd"
    changed, unchanged = summary(session, text), summary(session, "", "Steps:\n\n- a\n  - b")
    changes = fix(fact).changes
    changed.refresh_from_db()
    assert changed.text == text.replace("Maya", "Mia")
    assert [change["pk"] for change in changes if change["kind"] == "summary"] == [changed.pk] != [unchanged.pk]


@pytest.mark.parametrize("process", ["digest_session", "roll_summary", "build_moments"])
@pytest.mark.parametrize("is_withdrawn", [False, True])
def test_row_2_a_correction_and_a_retraction_can_be_undone_in_any_order(
    ada: UserProfile, quoting_server: OpenAIServer, process: str, is_withdrawn: bool
) -> None:
    fact, session = daughter(ada), Session.objects.get()
    append(ada, "s1", turns(4, first=2))
    run(process, session)
    order = withdrawal_request() if is_withdrawn else replacement_request("User: My daughter is called Mia.")
    first = retract(session, [4], reason="test", requested_by="test")
    correction = correct(fact, order, requested_by="test")
    undo_retraction(first, requested_by="test")
    undo_correction(correction, requested_by="test")
    assert names_told() == {"Maya"}
    correction = correct(MemoryAtom.objects.get(pk=fact.pk), order, requested_by="test")
    second = retract(session, [4], reason="test", requested_by="test")
    undo_correction(correction, requested_by="test")
    undo_retraction(second, requested_by="test")
    assert names_told() == {"Maya"}


def names_told() -> set[str]:
    texts = left() + str(Moment.objects.values_list("detail", flat=True))
    return {name for name in ("Maya", "Mia") if name in texts}


@pytest.mark.parametrize("is_withdrawn", [False, True])
def test_row_2_corrections_of_two_facts_in_one_text_are_undone_oldest_first(
    ada: UserProfile, is_withdrawn: bool
) -> None:
    fact, session = daughter(ada), Session.objects.get()
    text = "Intro one. Intro two.\nTheir daughter is called Maya. It rains. Their cat is called Otto."
    facts = ("User: My daughter is called Maya.", "User: My cat is called Otto.")
    one, both = summary(session, text), summary(session, "", *facts)
    order = withdrawal_request() if is_withdrawn else replacement_request("User: My daughter is called Mia.")
    first = correct(fact, order, requested_by="test")
    second = correct(cat(ada, session), replacement_request("User: My cat is called Olli."), requested_by="test")
    for correction in (first, second):
        undo_correction(correction, requested_by="test")
    one.refresh_from_db()
    both.refresh_from_db()
    assert {one["fact"] for one in both.facts} == {*facts}
    assert one.text == text if not is_withdrawn else "Maya" in one.text


def test_an_undo_reads_sessions_with_one_query(ada: UserProfile) -> None:
    correction, session = fix(daughter(ada)), Session.objects.get()
    since = [summary(session, f"Their daughter is called Mia. Version {number}.") for number in range(3)]
    with CaptureQueriesContext(connection) as queries:
        undo_correction(correction, requested_by="test")
    assert [one.text.count("Maya") for one in Summary.objects.filter(pk__in=[one.pk for one in since])] == [1, 1, 1]
    assert len([query for query in queries if query["sql"].startswith('SELECT "sessions_app_session"')]) == 1


def test_row_2_an_undo_leaves_a_name_that_was_used_since(ada: UserProfile, quoting_server: OpenAIServer) -> None:
    correction, session = fix(daughter(ada)), Session.objects.get()
    said = [NewMessage("user", "My niece is called Mia too."), NewMessage("assistant", "Nice.")]
    append(ada, "s1", said)
    append(ada, "s1", turns(4, first=4))
    run("digest_session", session)
    undo_correction(correction, requested_by="test")
    content = Message.objects.partitions().get().content
    assert "niece is called Mia" in content and "daughter is called Maya" in content


@pytest.mark.parametrize("payload", [None, [1], {"context": 5}, {"lessons": "x"}, {"lessons": [1]}])
def test_a_correction_accepts_events_with_other_payloads(
    ada: UserProfile, quoting_server: OpenAIServer, payload: Any
) -> None:
    fact, session = daughter(ada), Session.objects.get()
    run("digest_session", session)
    Message.objects.partitions().update(payload=payload)
    assert "event" not in {change["kind"] for change in fix(fact).changes}


def test_row_2_an_undo_leaves_sentences_that_had_the_new_name_before(ada: UserProfile) -> None:
    fact, session = daughter(ada), Session.objects.get()
    text = "Their cat is called Otto. The neighbor Olli came by. Their daughter is called Maya."
    one = summary(session, text)
    first = correct(cat(ada, session), replacement_request("User: My cat is called Olli."), requested_by="test")
    fix(fact)
    undo_correction(first, requested_by="test")
    one.refresh_from_db()
    assert one.text == text.replace("Maya", "Mia")


def test_row_2_an_undo_ignores_the_new_name_within_other_words(ada: UserProfile) -> None:
    said = [NewMessage("user", "My dog is called Rex."), NewMessage("assistant", "A lovely name.")]
    session = append(ada, "s1", said).session
    fact = note(
        MemoryStream.objects.ensure_of_person(ada, "default"),
        "User: My dog is called Rex.",
        "fact",
        source_session=session,
        source_message_ids=[session.messages.earliest("sequence").pk],
    )
    correction = correct(fact, replacement_request("User: My dog is called Al."), requested_by="test")
    append(ada, "s1", [NewMessage("user", "I also fired the kiln."), NewMessage("assistant", "Nice.")])
    one = summary(session, "Al sleeps.")
    undo_correction(correction, requested_by="test")
    one.refresh_from_db()
    assert one.text == "Rex sleeps."
