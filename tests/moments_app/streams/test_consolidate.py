"""Consolidation: items in the call are absorbed, newer ones stay, and the last consolidation can be undone."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import transaction
from pytest_django.fixtures import Settings

from moments_app.models import Cause, Job, MemoryAtom, MemoryStream
from moments_app.streams.add_atoms import add_atoms, is_due
from moments_app.streams.consolidate import Consolidate, ConsolidatedText, ConsolidationInput
from moments_app.streams.edit import evict
from moments_app.streams.texts import CannotUndo, mark_waiting, undo
from sessions_app.database.sql import lock_rows
from sessions_app.models import UserProfile
from sessions_app.text.length import cut_lines
from tests.support import openai_server as behave
from tests.support.api import Api
from tests.support.concurrency import on_its_own_connection, wait_until_somebody_waits
from tests.support.jobs import work_off
from tests.support.openai_server import OpenAIServer
from tests.support.streams import fold, form, note, rewrite, shard
from tests.support.transcript import START, talk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]


@pytest.fixture
def stream(ada: UserProfile) -> MemoryStream:
    """The user stream of Ada with five waiting observations."""
    MemoryStream.objects.ensure_for(talk(ada, 2))
    stream = MemoryStream.objects.get(stream_type="user")
    for number in range(5):
        note(stream, f"Observation {number}.")
    return stream


def waiting(stream: MemoryStream) -> list[str]:
    return list(stream.atoms.active().observations().in_order().values_list("content", flat=True))


def state(stream: MemoryStream) -> tuple[Any, ...]:
    stream.refresh_from_db()
    atoms = stream.atoms.order_by("id").values_list("pk", "content", "state", "merged_into")
    return stream.consolidated_content, list(atoms)


def test_a_formation_that_reaches_the_threshold_requests_a_consolidation(
    ada: UserProfile, stream: MemoryStream
) -> None:
    from moments_app.jobs.runner import run_job
    from moments_app.streams.form import FormMemories

    MemoryStream.objects.filter(pk=stream.pk).update(consolidation_trigger=5)  # as many as are waiting
    session = talk(ada, 6, text="I love kilns and I live in Turin.")
    run_job(Job.objects.request(FormMemories.name, session, requested_by="test", force=True).job_id)
    work_off()
    assert waiting(stream) == []
    stream.refresh_from_db()
    assert "Observation 3." in stream.consolidated_content


@pytest.mark.parametrize("engine", ["extractive", "model"])
def test_observations_of_the_call_are_absorbed_into_lines(
    stream: MemoryStream, request: pytest.FixtureRequest, engine: str
) -> None:
    if engine == "model":
        request.getfixturevalue("model_server")
    job = fold(stream)
    lines = list(stream.atoms.lines())
    stream.refresh_from_db()
    assert job.status == "completed" and job.result["absorbed"] == 5
    assert "\n".join(line.content for line in lines) == stream.consolidated_content
    assert all(line.job_id == job.pk and line.engine for line in lines)
    absorbed = MemoryAtom.objects.filter(state="absorbed")
    assert len(absorbed) == 5 and {atom.merged_into for atom in absorbed} == set(lines)
    assert all(f"Observation {number}." in stream.consolidated_content for number in range(5))


def test_row_2_items_added_during_an_engine_call_are_kept(stream: MemoryStream, model_server: OpenAIServer) -> None:
    def meanwhile(handler: Any, body: dict[str, Any]) -> None:
        note(stream, "Came meanwhile.")
        behave.answer_well(handler, body)

    model_server.queue(meanwhile)
    assert fold(stream).status == "completed"
    assert waiting(stream) == ["Came meanwhile."]


def test_row_2_an_edit_during_an_engine_call_is_kept_and_the_merge_is_repeated(
    stream: MemoryStream, model_server: OpenAIServer
) -> None:
    def meanwhile(handler: Any, body: dict[str, Any]) -> None:
        rewrite(stream, "An operator's line.")
        behave.answer_well(handler, body)

    model_server.queue(meanwhile)
    assert fold(stream).status == "queued"
    work_off()
    stream.refresh_from_db()
    assert stream.consolidated_content.startswith("An operator's line.\n")
    assert "Observation 4." in stream.consolidated_content


@pytest.mark.parametrize("behaviour", [behave.error(500), behave.content('{"text": " "}'), behave.truncated])
def test_row_3_a_failed_consolidation_changes_only_the_job(
    stream: MemoryStream, model_server: OpenAIServer, behaviour: behave.Behaviour
) -> None:
    before = state(stream)
    model_server.always(behaviour)
    assert fold(stream).status == "queued"
    assert state(stream) == before


def test_an_undo_restores_text_and_observations_exactly(stream: MemoryStream) -> None:
    rewrite(stream, "Before: «é»\n  kept  ")
    before = state(stream)
    fold(stream)
    assert state(stream) != before
    undo(stream, requested_by="test")
    assert state(stream) == before
    with pytest.raises(CannotUndo, match="no merge"):
        undo(stream, requested_by="test")


def test_an_undo_keeps_later_edits(stream: MemoryStream) -> None:
    fold(stream)
    rewrite(stream, "edited")
    undo(stream, requested_by="test")
    stream.refresh_from_db()
    assert stream.consolidated_content == "edited" and len(waiting(stream)) == 5


@pytest.mark.slow
def test_an_undo_restores_rewritten_lines(stream: MemoryStream, model_server: OpenAIServer) -> None:
    fold(stream)
    before = state(stream)
    note(stream, "Observation 5.")
    whole = {"text": "Six observations.", "carries": [*(f"L{n}" for n in range(1, 6)), "O1"]}
    model_server.queue(behave.content(json.dumps({"lines": [whole]})))
    fold(stream)
    assert state(stream)[0] == "Six observations."
    [line] = stream.atoms.lines()
    assert line.parts.count() == 6
    undo(stream, requested_by="test")
    text, atoms = state(stream)
    assert (text, atoms[:-1]) == before and atoms[-1][1:] == ("Observation 5.", "active", None)
    undo(stream, requested_by="test")
    assert state(stream)[0] == "" and len(waiting(stream)) == 6


def test_a_line_evicted_by_an_operator_stays_out_after_an_undo(
    stream: MemoryStream,
) -> None:
    fold(stream)
    evict(stream.atoms.lines()[0], requested_by="test")
    note(stream, "Observation 5.")
    fold(stream)
    undo(stream, requested_by="test")
    assert [line.carries for line in stream.atoms.lines()] == [[atom.pk] for atom in stream.atoms.order_by("pk")[1:5]]


def test_consolidations_are_distinguished_independently_of_the_clock(
    stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold(stream)
    before = state(stream)
    note(stream, "Observation 5.")
    monkeypatch.setattr("moments_app.streams.texts.timezone.now", lambda: START)
    fold(stream)
    undo(stream, requested_by="test")
    text, atoms = state(stream)
    assert (text, atoms[:-1]) == before


def test_a_statement_repeated_since_does_not_wait_twice(stream: MemoryStream) -> None:
    fold(stream)
    note(stream, "Observation 2!")
    undo(stream, requested_by="test")
    assert sorted(waiting(stream)) == [
        "Observation 0.",
        "Observation 1.",
        "Observation 2!",
        "Observation 3.",
        "Observation 4.",
    ]


def test_the_text_is_within_its_limit(stream: MemoryStream, settings: Settings) -> None:
    MemoryStream.objects.filter(pk=stream.pk).update(consolidated_max_words=6)
    fold(stream)
    stream.refresh_from_db()
    assert 0 < len(stream.consolidated_content.split()) <= 6
    assert cut_lines("One two three.\nFour five six. Seven eight", 7) == "One two three.\nFour five six."


def test_a_stream_without_a_prompt_is_never_consolidated(ada: UserProfile) -> None:
    stream = shard("kilns", consolidation_prompt="")
    for number in range(20):
        note(stream, f"Observation {number}.")
    assert fold(stream).status == "skipped"
    assert len(waiting(stream)) == 20
    assert form(talk(ada, 6)).status == "completed"


class TestPinned:
    """Text that an operator wrote or pinned is kept word for word."""

    def test_a_pinned_observation_is_not_absorbed_and_does_not_count_as_waiting(self, stream: MemoryStream) -> None:
        stream.atoms.filter(content="Observation 2.").update(is_pinned=True)
        assert not is_due(stream)
        assert fold(stream).result["absorbed"] == 4
        assert waiting(stream) == ["Observation 2."]

    def test_pinned_facts_are_in_the_context_in_addition_to_the_newest_ones(
        self, stream: MemoryStream, service: Api
    ) -> None:
        for days, said in enumerate(["An old fact.", "A newer fact.", "The newest fact."]):
            note(stream, said, "fact", formed_at=START + timedelta(days=days))
        note(stream, "The oldest fact of all.", "fact", is_pinned=True, formed_at=START - timedelta(days=9))
        MemoryStream.objects.filter(pk=stream.pk).update(fact_buffer_max=1)
        context = service.get("memory/context", user_id="ada", session_id="s1", layers="user").json()["context"]
        assert "The oldest fact of all." in context and "The newest fact." in context
        assert "A newer fact." not in context


def test_a_stream_can_have_its_own_model(stream: MemoryStream, model_server: OpenAIServer) -> None:
    MemoryStream.objects.filter(pk=stream.pk).update(consolidation_model="large-model")
    assert fold(stream).status == Job.Status.COMPLETED
    assert [body["model"] for body in model_server.requests] == ["large-model"]


class TestAtOnce:
    """Concurrent changes: rows are always locked in the same order, so no deadlock occurs."""

    def test_items_of_removed_lines_are_locked_in_order(self, stream: MemoryStream) -> None:
        fold(stream)
        [first, last] = (stream.atoms.order_by(by).values_list("pk", flat=True)[0] for by in ("pk", "-pk"))
        note(stream, "Something new.")
        asked = Job.objects.request(Consolidate.name, None, stream=stream, requested_by="test", force=True)
        job = Job.objects.claim(asked.job_id)
        assert job is not None
        input = Consolidate().claim(job)
        assert isinstance(input, ConsolidationInput)
        commit = partial(Consolidate().commit, job, input, ConsolidatedText([], engine="test"))
        with ThreadPoolExecutor(1) as pool:
            with transaction.atomic():
                lock_rows(MemoryAtom.objects.filter(pk=first))
                done = pool.submit(on_its_own_connection, transaction.atomic(commit))
                wait_until_somebody_waits()
                lock_rows(MemoryAtom.objects.filter(pk=last))
            done.result()
        assert len(waiting(stream)) == 6

    def test_an_added_item_waits_for_a_consolidation_that_releases_the_same_one(
        self, stream: MemoryStream, ada: UserProfile
    ) -> None:
        fold(stream)
        absorbed = stream.atoms.get(content="Observation 3.")
        same = MemoryAtom(
            stream=stream,
            user=ada,
            atom_type="observation",
            content=absorbed.content,
            content_hash=absorbed.content_hash,
        )
        add = transaction.atomic(partial(add_atoms, stream, [same], requested_by="test"))
        with ThreadPoolExecutor(1) as pool:
            with transaction.atomic():
                lock_rows(MemoryStream.objects.filter(pk=stream.pk))
                added = pool.submit(on_its_own_connection, add)
                wait_until_somebody_waits()
                mark_waiting([absorbed], Cause("test"))
            assert added.result() == []
        assert waiting(stream) == ["Observation 3."]
