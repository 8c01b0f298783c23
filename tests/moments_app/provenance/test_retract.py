"""Retraction: planted or mistaken turns and everything derived from them are no longer used."""

import json
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.utils import timezone
from pytest_django.fixtures import Settings

from memoryproject.settings import CONF
from moments_app.jobs.runner import run_job
from moments_app.models import (
    Contradiction,
    CorrectedTurn,
    Correction,
    EngineCall,
    EntityLink,
    Job,
    KnownPerson,
    MemoryAtom,
    MemoryStream,
    Moment,
    RetractedItem,
    Retraction,
    Summary,
    TurnEmbedding,
    Word,
)
from moments_app.models import summary as summaries
from moments_app.provenance.retract import CannotRetract, preview, retract
from moments_app.provenance.retract_items import ItemSelection, retract_items
from moments_app.provenance.undo import undo_retraction
from moments_app.streams.release import release
from moments_app.summaries import RollSummary
from sessions_app.models import Message, Session, UserProfile
from sessions_app.people.provenance import declared
from sessions_app.retention.restore import restore_archive
from sessions_app.retention.retain import retain
from sessions_app.transcript.append import NewMessage, append
from sessions_app.transcript.load import load_session_messages
from tests.support import openai_server as behave
from tests.support.api import Api
from tests.support.commands import printed
from tests.support.entities import make_entity
from tests.support.jobs import (
    assert_chain_is_whole,
    assert_each_compacted_turn_is_in_exactly_one_moment,
    build,
    count,
    work_off,
)
from tests.support.kept_rows import KeptRows
from tests.support.openai_server import OpenAIServer
from tests.support.retention import files
from tests.support.streams import fold, fold_while, form, rewrite, shard
from tests.support.tables import everything
from tests.support.transcript import START, talk, turns

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("rolling", "forming")]

MARKER = "xyzzyplugh"
POISON = f"I live in {MARKER}. I love {MARKER}, the {MARKER} account, and all {MARKER} money."
PLANTED = [20, 38, 39]  # at the start of a moment, and at the end of a formation


def keep_probe(session: Session, sequence: int) -> None:
    """Save a turn as a probe that was asked once."""
    from memory_extras.lab.probes import save

    draft = save.draft_from(session, sequence)
    assert draft is not None
    probe, _ = save.save_probe(session.user, draft, created_by="operator:eve")
    probe.results.create(run_id=probe.probe_id, user=session.user, is_met=True, requested_by="test")


def poisoned(user: UserProfile, *planted: int, session_id: str = "s1", size: int = 40) -> Session:
    """Create a conversation with planted turns."""
    batch = turns(size)
    for at in planted:
        batch[at] = NewMessage(role=batch[at].role, content=POISON, created_at=START + timedelta(minutes=at))
    return append(user, session_id, batch).session


class TestRetractedTurns:
    """Retracted turns are shown only in the transcript."""

    @pytest.fixture
    def session(self, ada: UserProfile, model_server: OpenAIServer, embeddings_server: OpenAIServer) -> Session:
        session = poisoned(ada, 36)
        session.messages.filter(sequence=36).update(retracted_at=timezone.now())
        return session

    @pytest.mark.slow
    def test_row_10_no_engine_request_contains_a_retracted_turn(
        self, session: Session, service: Api, model_server: OpenAIServer, embeddings_server: OpenAIServer
    ) -> None:
        form(session)
        build(session, lag=0)
        Job.objects.request(RollSummary.name, session, requested_by="test")
        work_off()
        asked = {"user_id": "ada", "session_id": "s1", "query": "Where is the kiln?", "retrieval": "auto"}
        assert service.get("memory/context", **asked).status_code == 200
        asked_for = {json.dumps(body) for body in model_server.requests + embeddings_server.requests}
        assert len(asked_for) >= 5
        assert not [body for body in asked_for if MARKER in body]

    @pytest.mark.slow
    def test_row_10_no_context_search_or_reload_contains_a_retracted_turn(self, session: Session, service: Api) -> None:
        work_off()
        count(session.user)
        assert not Word.objects.filter(stem__startswith=MARKER[:6]).exists()
        retracted = list(Message.objects.exclude(retracted_at=None).values_list("pk", flat=True))
        assert retracted and not TurnEmbedding.objects.filter(source__in=retracted).exists()
        who = {"user_id": "ada"}
        for query in (POISON, "point 0", "money"):
            found = service.post("memory/search", **who, query=query, match_count=100)
            assert found.status_code == 200 and MARKER not in found.content.decode().replace(query, "")
        context = service.get("memory/context", **who, session_id="s1", query="Which account?")
        assert MARKER not in context.content.decode()
        live = service.get("sessions/s1/messages", **who, view="live", limit=1000)
        assert MARKER not in live.content.decode()
        assert len(live.json()["messages"]) == 39

    def test_the_transcript_shows_retracted_turns_as_such(self, session: Session, service: Api) -> None:
        shown = service.get("sessions/s1/messages", user_id="ada", view="all", after=35, limit=2).json()["messages"]
        assert shown[0]["content"] == POISON and shown[0]["retracted_at"] is not None
        assert shown[1]["retracted_at"] is None


def with_marker() -> dict[str, list[str]]:
    """Return the derived rows that contain the marker."""
    kept = ("sessions_app_message", "moments_app_retraction", "moments_app_retracteditem")
    turns = [str(row) for row in Message.objects.partitions().values()]
    stem = MARKER[:8]
    rows = everything(but=kept) | {"partition events": turns}
    return {table: found for table, texts in rows.items() if (found := [text for text in texts if stem in text])}


@pytest.fixture(params=["extractive", "model"])
def engine(request: pytest.FixtureRequest) -> str:
    if request.param == "model":
        request.getfixturevalue("model_server")
    return str(request.param)


@pytest.fixture
def session(engine: str, transactional_db: None, kept_rows: KeptRows) -> Session:
    """Ada's poisoned session between two others, with everything derived from them, and a session of Bo."""
    kept_rows.have(engine, make_sessions)
    return Session.objects.get(session_id="planted")


def make_sessions() -> None:
    shard("kilns", prompt="Everything about accounts and kilns.", consolidation_trigger=1)
    ada, bo = UserProfile.objects.ensure("ada"), UserProfile.objects.ensure("bo")
    for user, session_id in ((ada, "before"), (bo, "bos")):
        remember(talk(user, 40, session_id=session_id))
    remember(poisoned(ada, *PLANTED, session_id="planted"), turns(20, first=40))
    remember(talk(ada, 40, session_id="after"))


def tell_on(handler: Any, body: dict[str, Any]) -> None:
    """Put the marker into the summaries of moments if it is in the turns."""
    answer = behave.right_answer(body)
    said = " ".join(turn["text"] for turn in behave.turns_of(body))
    for moment in answer.get("moments", ()):
        moment["summary"] = f"Came through {MARKER}." if MARKER in said else "Came from nowhere."
    handler.complete(json.dumps(answer))


def remember(session: Session, *batches: list[NewMessage]) -> None:
    """Derive everything from a session, now and after each further batch."""
    for batch in ([], *batches):
        if batch:
            append(session.user, session.session_id, batch)
        form(session)
        for stream in MemoryStream.objects.visible_to(session):
            fold(stream)
        Job.objects.request(RollSummary.name, session, requested_by="test", due_now=True)
        work_off()
        build(session, lag=10)
        count(session.user)


def remembered(session: Session) -> Session:
    """Form, summarize and build the session at once."""
    form(session)
    Job.objects.request(RollSummary.name, session, requested_by="test", due_now=True)
    work_off()
    build(session, lag=0)
    return session


def retained(session: Session, count: int) -> Session:
    """Let retention archive or delete the first turns."""
    old = timezone.now() - timedelta(days=100)
    session.messages.turns().filter(sequence__lt=count).update(arrived_at=old)
    done = retain()
    assert done.archived_turns + done.deleted_turns == count
    session.refresh_from_db()
    return session


def run_open(process: str) -> Job:
    """Run the open job of a process."""
    job = run_job(Job.objects.open().get(process=process).job_id)
    assert job is not None
    return job


def facts(service: Api) -> set[str]:
    """Return the content of Ada's facts."""
    return {fact["content"] for fact in service.get("facts", user_id="ada").json()["facts"]}


def of_ada(service: Api) -> set[str]:
    """Return the facts about Ada herself. Which turns are quoted depends on the turns that are formed together."""
    return {text for text in facts(service) if not text.startswith("Turn ")}


class TestRetract:
    @pytest.mark.slow
    def test_row_10_a_retraction_leaves_no_derived_text_with_the_planted_marker(self, session: Session) -> None:
        bounds = session.last_moment_message_idx, session.live_from_sequence
        tables = {"moments_app_moment", "moments_app_summary", "moments_app_memoryatom", "moments_app_memorystream"}
        assert tables | {"moments_app_word"} <= with_marker().keys()
        retract(session, PLANTED, reason="planted", requested_by="test")
        left = with_marker()
        assert left.keys() <= {"moments_app_word"}  # until words are counted again
        work_off()
        assert with_marker() == {}
        session.refresh_from_db()
        assert (session.last_moment_message_idx, session.live_from_sequence) == bounds
        assert_each_compacted_turn_is_in_exactly_one_moment(session)
        assert_chain_is_whole(session.user)

    @pytest.mark.slow
    def test_row_10_undoing_a_retraction_restores_everything(self, session: Session) -> None:
        before = comparable()
        retraction = retract(session, PLANTED, reason="planted", requested_by="test")
        undo_retraction(retraction, requested_by="test")
        assert comparable() == before

    @pytest.mark.slow
    def test_row_10_undoing_a_retraction_after_a_rebuild_restores_everything(self, session: Session) -> None:
        before = comparable()
        retraction = retract(session, PLANTED, reason="planted", requested_by="test")
        work_off()
        undo_retraction(retraction, requested_by="test")
        work_off()
        assert comparable() == before

    @pytest.mark.slow
    def test_row_9_memory_of_other_people_is_not_changed(self, session: Session, bo: UserProfile) -> None:
        def of_bo() -> list[Any]:
            kept = [list(model.objects.filter(user=bo).order_by("pk").values()) for model in (Moment, Summary, Message)]
            own = MemoryAtom.objects.filter(source_session__user=bo).order_by("pk").values("pk", "content")
            return [*kept, UserProfile.objects.filter(pk=bo.pk).values().get(), list(own)]

        before = of_bo()
        retraction = retract(session, PLANTED, reason="planted", requested_by="test")
        work_off()
        assert of_bo() == before
        undo_retraction(retraction, requested_by="test")
        assert of_bo() == before

    @pytest.mark.slow
    def test_row_10_a_completely_retracted_session_leaves_nothing_and_can_be_restored(self, session: Session) -> None:
        before = comparable()
        asked = preview(session, None)
        retraction = retract(session, None, reason="not the person", requested_by="test")
        assert retraction.result == {"turns": asked.turns, "withdrawn": asked.withdrawn}
        work_off()
        assert with_marker() == {}
        left = (Moment.objects.filter(source_session=session), MemoryAtom.objects.filter(source_session=session))
        assert not any(rows.exists() for rows in left) and not session.summaries.exists()
        assert load_session_messages(session, 50) == ([], False, None)
        assert_chain_is_whole(session.user)
        undo_retraction(retraction, requested_by="test")
        work_off()
        assert comparable() == before

    @pytest.mark.slow
    def test_a_preview_says_what_is_withdrawn_and_changes_nothing(self, session: Session, engine: str) -> None:
        before = everything()
        found = preview(session, PLANTED)
        assert everything() == before
        assert found.turns == 3 and found.withdrawn["moments"] == len(found.moment_keys) > 1
        assert found.engine_calls >= 4
        calls = EngineCall.objects.count()
        retraction = retract(session, PLANTED, reason="planted", requested_by="test")
        work_off()
        assert retraction.result["withdrawn"] == found.withdrawn
        if engine == "model":
            assert abs(EngineCall.objects.count() - calls - found.engine_calls) <= 2

    @pytest.mark.slow
    @pytest.mark.parametrize("engine", ["model"], indirect=True)
    def test_rows_are_deleted_and_rewritten_as_their_tables_declare(self, session: Session) -> None:
        planted = list(session.messages.turns().filter(sequence__in=PLANTED).values_list("pk", flat=True))
        candidates = session.atoms.candidates().filter(source_message_ids__overlap=planted).order_by("pk")
        release(candidates[0], "In words that are nobody's.", actor="operator:eve")
        if "lab" in CONF.extras:
            keep_probe(session, PLANTED[0])
        fact = session.atoms.filter(is_candidate=False, source_message_ids__overlap=planted)[0]
        fact.about = KnownPerson.objects.create(user=session.user, key="anna", name="Anna")
        fact.save(update_fields=["about"])
        Contradiction.objects.create(user=session.user, earlier=fact, later=fact, reason="Nobody is sure.")
        asked = {"user": session.user, "kind": "corrected", "before": "kiln", "requested_by": "test"}
        correction = Correction.objects.create(fact=fact, **asked)
        turn = {"user": session.user, "session": session, "sequence": PLANTED[0], "wrong": "kiln"}
        CorrectedTurn.objects.create(correction=correction, **turn)
        goals = [make_entity(session.user, title, "goal") for title in ("Sail", "Fire")]
        EntityLink.objects.create(user=session.user, from_entity=goals[0], to_entity=goals[1])
        noted = ItemSelection(entity_ids=[goals[0].entity_id])
        retractions = [
            retract(session, PLANTED, reason="planted", requested_by="test"),
            retract_items(session.user, noted, reason="planted", requested_by="test"),
        ]
        items = set(RetractedItem.objects.filter(retraction__in=retractions).values_list("model", "is_rewritten"))
        tables = [(provenance.model._meta.label_lower, provenance) for provenance in declared()]
        assert {model for model, is_rewritten in items if not is_rewritten} == {
            label for label, provenance in tables if provenance.is_withdrawn
        }
        assert {model for model, is_rewritten in items if is_rewritten} == {
            label for label, provenance in tables if provenance.is_rewritten
        }

    @pytest.mark.slow
    def test_changes_by_people_stay(self, session: Session, service: Api) -> None:
        service.patch("users/ada", interests=["sailing"], summary="She is kind. She sails.")
        shared = MemoryStream.objects.get(name="kilns")
        text = f"{shared.consolidated_content}\nNever call at noon."
        rewrite(shared, text)
        before = comparable()
        retraction = retract(session, PLANTED, reason="planted", requested_by="test")
        session.user.refresh_from_db()
        shared.refresh_from_db()
        assert "She is kind. She sails." in session.user.summary and "sailing" in session.user.interests
        assert "Never call at noon." in shared.consolidated_content
        assert with_marker().keys() <= {"moments_app_word"}
        undo_retraction(retraction, requested_by="test")
        assert comparable() == before


class TestMeanwhile:
    """Work that started before a retraction stores nothing of the retracted turns."""

    @pytest.fixture
    def planted(self, ada: UserProfile) -> Session:
        return poisoned(ada, *PLANTED)

    @pytest.mark.slow
    @pytest.mark.parametrize("process", ["build_moments", "roll_summary", "form_memories"])
    def test_row_10_an_engine_result_from_before_the_retraction_is_discarded(
        self, planted: Session, model_server: OpenAIServer, process: str
    ) -> None:
        def meanwhile(handler: Any, body: dict[str, Any]) -> None:
            if MARKER in json.dumps(body):
                retract(planted, PLANTED, reason="planted", requested_by="test")
            connection.close()
            behave.answer_well(handler, body)

        model_server.queue(meanwhile)
        params = {"lag": 0} if process == "build_moments" else {}
        asked = Job.objects.request(process, planted, requested_by="test", force=True, params=params)
        job = run_job(asked.job_id)
        assert job is not None and (job.status, job.attempts) == ("queued", 1)
        work_off()
        assert planted.messages.exclude(retracted_at=None).count() == 3
        job.refresh_from_db()
        assert (job.status, job.attempts) == ("completed", 2)
        assert with_marker() == {}

    @pytest.mark.slow
    def test_row_10_a_concurrent_consolidation_is_withdrawn(self, planted: Session) -> None:
        form(planted)
        stream = MemoryStream.objects.get(stream_type="user")
        fold_while(stream, lambda: retract(planted, PLANTED, reason="planted", requested_by="test"))
        assert with_marker() == {}

    @pytest.mark.slow
    def test_row_10_a_consolidation_of_withdrawn_items_is_discarded(
        self, planted: Session, model_server: OpenAIServer
    ) -> None:
        form(planted)
        stream = MemoryStream.objects.get(stream_type="user")

        def meanwhile(handler: Any, body: dict[str, Any]) -> None:
            retract(planted, PLANTED, reason="planted", requested_by="test")
            connection.close()
            behave.answer_well(handler, body)

        model_server.queue(meanwhile)
        assert fold(stream).status == "queued"
        work_off()
        assert with_marker() == {}

    @pytest.mark.slow
    def test_row_10_no_journey_contains_withdrawn_text(
        self, ada: UserProfile, model_server: OpenAIServer, settings: Settings
    ) -> None:
        """The journey is passed on from session to session, and to digests."""
        settings.MEMORY_FORMATION = settings.MEMORY_FORMATION.model_copy(update={"enabled": False})
        model_server.always(tell_on)
        planted = poisoned(ada, 5)
        build(planted, lag=0)
        for number in range(2):
            build(talk(ada, 25, session_id=f"later-{number}", days=number + 1), lag=0)
            digest = Session.objects.get(session_id=f"later-{number}")
            talk(ada, 8, session_id=digest.session_id, days=number + 1.5)
            Job.objects.request("digest_session", digest, requested_by="test", force=True)
            work_off()
        told = [event.payload or {} for event in Message.objects.partitions().order_by("pk")]
        assert MARKER in told[-2]["recent_moments_summary"] and MARKER in Moment.objects.newest_first()[0].journey
        before = comparable()
        retraction = retract(planted, [5], reason="planted", requested_by="test")
        assert with_marker().keys() <= {"moments_app_word"}  # until words are counted again
        undo_retraction(retraction, requested_by="test")
        assert comparable() == before

    @pytest.mark.slow
    def test_row_10_a_journey_withdrawn_during_an_engine_call_is_not_continued(
        self, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        model_server.always(tell_on)
        planted = poisoned(ada, 5)
        build(planted, lag=0)
        other = talk(ada, 25, session_id="later", days=1)

        def meanwhile(handler: Any, body: dict[str, Any]) -> None:
            retract(planted, [5], reason="planted", requested_by="test")
            connection.close()
            tell_on(handler, body)

        model_server.queue(meanwhile)
        assert build(other, lag=0).status == "queued"
        work_off()
        assert other.moments.exists() and with_marker() == {}

    @pytest.mark.slow
    def test_an_earlier_context_is_not_served_after_a_retraction(self, planted: Session, service: Api) -> None:
        form(planted)
        build(planted, lag=0)

        def context() -> Any:
            return service.get("memory/context", user_id="ada", session_id="s1").json()

        assert MARKER in context()["context"] and context()["cached"]
        retract(planted, PLANTED, reason="planted", requested_by="test")
        assert MARKER not in context()["context"]

    @pytest.mark.slow
    def test_a_failed_rebuild_does_not_restore_retracted_text(
        self, planted: Session, model_server: OpenAIServer
    ) -> None:
        build(planted, lag=0)
        model_server.always(behave.error(500))
        retract(planted, PLANTED, reason="planted", requested_by="test")
        work_off()
        assert Job.objects.get(process="build_moments", status="failed").error
        assert not Moment.objects.exists() and with_marker() == {}
        model_server.always(behave.answer_well)
        Job.objects.get(process="build_moments", status="failed").restart()
        work_off()
        assert_each_compacted_turn_is_in_exactly_one_moment(planted)
        assert planted.last_moment_message_idx == 37  # the last turn that is not retracted


class TestArchived:
    """Memory derived from archived turns, whose text is in files, is derived again."""

    @pytest.fixture
    def session(self, transactional_db: None, archive_folder: Path, kept_rows: KeptRows) -> Session:
        """A session that was formed and built at once. The first of its two moments is archived."""
        told = f"told, with a window of {summaries.WINDOW} turns"
        kept_rows.have(told, lambda: remembered(self.tell(UserProfile.objects.ensure("ada"))))
        session = retained(Session.objects.get(session_id="s1"), 24)
        assert preview(session, [40]).lost == ""
        return session

    @pytest.fixture
    def window(self, rolling: None, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the window of summaries reach back to the first turn."""
        monkeypatch.setattr("moments_app.models.summary.WINDOW", 50)

    def tell(self, ada: UserProfile, planted: str = POISON) -> Session:
        """Append turns about Ada and a planted one."""
        batch = turns(50)
        said = {2: "I'm allergic to hazelnuts.", 4: "I love pottery.", 34: "I love opera.", 40: planted}
        for at, text in said.items():
            batch[at] = replace(batch[at], content=text)
        return append(ada, "s1", batch).session

    @pytest.mark.slow
    def test_facts_from_archived_turns_are_derived_again(self, session: Session, service: Api) -> None:
        there = facts(service)
        assert [text for text in there if "pottery" in text] and [text for text in there if "hazelnuts" in text]
        asked = {"user_id": "ada", "session_id": "s1", "sequences": [40], "reason": "planted"}
        assert service.post("retractions", **asked).status_code == 201
        work_off()
        assert facts(service) == {text for text in there if MARKER not in text} != there

    @pytest.mark.slow
    def test_interests_from_archived_turns_are_derived_again(self, session: Session, ada: UserProfile) -> None:
        chess = replace(turns(1, days=1)[0], content="I love chess.")
        retained(remembered(append(ada, "later", [chess, *turns(19, first=1, days=1)]).session), 20)
        ada.refresh_from_db()
        loved = ada.interests
        retract(session, [40], reason="planted", requested_by="test")
        work_off()
        ada.refresh_from_db()
        assert {"pottery", "chess"} <= set(ada.interests) == {each for each in loved if MARKER not in each}

    @pytest.mark.slow
    def test_row_10_a_rebuilt_profile_line_names_its_turn(self, session: Session, ada: UserProfile) -> None:
        allergy = session.messages.get(sequence=2).pk
        statement = MemoryAtom.objects.get(content__contains="hazelnuts")
        MemoryAtom.objects.filter(pk=statement.pk).update(content=f"{statement.content} in {MARKER}")
        retract(session, [40], reason="planted", requested_by="test")
        ada.refresh_from_db()
        assert "hazelnuts" not in ada.summary and MARKER not in ada.summary
        work_off()
        ada.refresh_from_db()
        assert "hazelnuts" in ada.summary
        assert MemoryAtom.objects.get(content__contains="hazelnuts").source_message_ids == [allergy]

    @pytest.mark.slow
    def test_a_preview_says_what_is_lost_if_turns_were_deleted(self, ada: UserProfile, settings: Settings) -> None:
        settings.RETENTION = settings.RETENTION.model_copy(update={"action": "delete"})
        session = remembered(self.tell(ada))
        assert preview(session, [40]).lost == ""
        told = preview(retained(session, 24), [40]).lost
        assert told == ("Not rebuilt, because retention deleted the turns: facts and observations (12).")
        assert told in printed("retract", "ada", "s1", sequences="40", dry_run=True)

    @pytest.mark.slow
    def test_row_10_retracted_text_is_not_derived_again(self, ada: UserProfile, archive_folder: Path) -> None:
        session = remembered(poisoned(ada, 2, 40, size=50))
        retract(session, [2], reason="planted", requested_by="test")
        work_off()
        retained(session, 24)
        retract(session, [40], reason="planted too", requested_by="test")
        work_off()
        formed = Job.objects.filter(process="form_memories").latest("id").result
        assert (formed["first_sequence"], formed["last_sequence"]) == (0, 49)
        assert with_marker() == {}

    @pytest.mark.slow
    @pytest.mark.parametrize("sequences", [[2], None])
    def test_archived_turns_are_retracted_over_rest(
        self, session: Session, service: Api, sequences: list[int] | None
    ) -> None:
        asked = {"user_id": "ada", "session_id": "s1", "sequences": sequences, "reason": "planted"}
        turns = 1 if sequences else 50
        assert service.post("retractions", **asked, preview=True).json()["turns"] == turns
        answer = service.post("retractions", **asked)
        assert (answer.status_code, answer.json()["turns"]) == (201, turns)
        work_off()
        found = MemoryAtom.objects.findable().filter(content__contains="hazelnuts")
        assert not found.exists() and not session.archives.exists()
        undone = service.post(f"retractions/{answer.json()['retraction_id']}/undo", user_id="ada")
        assert undone.status_code == 200 and found.exists()

    @pytest.mark.slow
    def test_row_10_a_moment_of_archived_turns_with_retracted_text_is_withdrawn(self, session: Session) -> None:
        """One engine call created both moments, so one may contain text of the other's turns."""
        beside = Moment.objects.get(last_sequence__lt=24)
        Moment.objects.filter(pk=beside.pk).update(summary=f"{beside.summary} She lives in {MARKER}.")
        with pytest.raises(CannotRetract, match="turns from 0 on are archived"):
            retract(session, [40], reason="planted", requested_by="test")
        restore_archive(session, actor="test")
        session.refresh_from_db()
        retract(session, [40], reason="planted", requested_by="test")
        work_off()
        assert with_marker() == {}
        assert_each_compacted_turn_is_in_exactly_one_moment(session)

    @pytest.mark.slow
    def test_row_10_a_moment_of_deleted_turns_with_retracted_text_is_withdrawn(
        self, ada: UserProfile, settings: Settings
    ) -> None:
        settings.RETENTION = settings.RETENTION.model_copy(update={"action": "delete"})
        session = retained(remembered(self.tell(ada)), 24)
        beside = Moment.objects.get(last_sequence__lt=24)
        Moment.objects.filter(pk=beside.pk).update(detail=f"{beside.detail} She lives in {MARKER}.")
        assert "moments (1)." in preview(session, [40]).lost
        retract(session, [40], reason="planted", requested_by="test")
        work_off()
        assert with_marker() == {}
        assert not Moment.objects.filter(pk=beside.pk).exists()

    @pytest.mark.slow
    def test_an_undone_retraction_restores_everything(self, session: Session) -> None:
        before = comparable()
        retraction = retract(session, [40], reason="planted", requested_by="test")
        work_off()
        undo_retraction(retraction, requested_by="test")
        work_off()
        assert comparable() == before

    @pytest.mark.usefixtures("window")
    @pytest.mark.slow
    def test_a_new_summary_covers_archived_turns(self, session: Session) -> None:
        [was] = Summary.objects.completed()
        retract(session, [40], reason="planted", requested_by="test")
        work_off()
        [summary] = Summary.objects.completed()
        planted = session.messages.get(sequence=40).pk
        assert summary.source_message_ids == [pk for pk in was.source_message_ids if pk != planted]
        assert "hazelnuts" in str(summary.facts) and MARKER not in f"{summary.text} {summary.facts}"

    @pytest.mark.slow
    @pytest.mark.usefixtures("window")
    def test_a_summary_is_written_again_from_archived_turns_alone(self, session: Session) -> None:
        retract(session, list(range(24, 50)), reason="planted", requested_by="test")
        work_off()
        [summary] = Summary.objects.completed()
        assert (summary.start_sequence, summary.end_sequence) == (0, 23)
        assert "hazelnuts" in str(summary.facts)

    @pytest.mark.slow
    @pytest.mark.usefixtures("window")
    def test_the_last_attempt_of_a_summary_skips_unreadable_turns(
        self, session: Session, archive_folder: Path, settings: Settings
    ) -> None:
        settings.JOBS = settings.JOBS.model_copy(update={"max_attempts": 2})
        files(archive_folder)[0].unlink()
        retract(session, [40], reason="planted", requested_by="test")
        asked = Job.objects.open().get(process="roll_summary").job_id
        job = run_job(asked)
        assert job and (job.status, job.error) == ("queued", "The texts of some archived turns can't be read.")
        Job.objects.open().update(run_after=timezone.now())
        job = run_job(asked)
        assert job and job.status == "completed" and job.result["unreadable"] == [[0, 23]]
        assert Summary.objects.completed().get().source_message_ids == list(
            session.messages.turns().unretracted().order_by("sequence").values_list("pk", flat=True)
        )

    @pytest.mark.slow
    def test_other_ranges_are_formed_while_a_file_is_unreadable_and_its_range_later(
        self, session: Session, service: Api, archive_folder: Path
    ) -> None:
        there = of_ada(service)
        [file] = files(archive_folder)
        file.rename(archive_folder / "away")
        retract(session, [40], reason="planted", requested_by="test")
        job = run_open("form_memories")
        assert (job.status, job.result["first_sequence"], job.result["last_sequence"]) == ("completed", 24, 49)
        assert job.result["unreadable"] == [[0, 23]]
        readable = [f"Turn {number} " for number in range(24, 50)]
        assert (
            of_ada(service)
            == {text for text in there if "opera" in text or any(turn in text for turn in readable)}
            != set()
        )
        job = run_open("form_memories")
        assert job.status == "queued" and job.error == "The texts of some archived turns can't be read."
        assert job.params == {"again": [[0, 23]]}
        (archive_folder / "away").rename(file)
        Job.objects.open().update(run_after=timezone.now())
        work_off()
        assert of_ada(service) == {text for text in there if MARKER not in text} != there

    @pytest.mark.slow
    def test_ranges_longer_than_one_formation_are_formed_completely(
        self, session: Session, service: Api, archive_folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        there = of_ada(service)
        monkeypatch.setattr("moments_app.streams.form.MAX_TURNS", 10)
        [file] = files(archive_folder)
        file.rename(archive_folder / "away")
        retract(session, [40], reason="planted", requested_by="test")
        formed = [run_open("form_memories").result for _ in range(3)]
        assert [(each["first_sequence"], each["last_sequence"]) for each in formed] == [(24, 29), (30, 39), (41, 49)]
        assert formed[0]["unreadable"] == [[0, 9], [10, 19], [20, 23]]
        (archive_folder / "away").rename(file)
        work_off()
        assert of_ada(service) == {text for text in there if MARKER not in text} != there


@pytest.mark.usefixtures("forming")
class TestInterests:
    """Interests stated in turns are retracted with these turns only."""

    @pytest.fixture
    def session(self, ada: UserProfile) -> Session:
        """Ada's interests, some of them planted."""
        batch = turns(40)
        said = {2: "I love pottery.", 10: "I love rowing.", 20: "I love knitting.", 30: "I love chess."}
        for at, text in said.items():
            batch[at] = replace(batch[at], content=text)
        session = append(ada, "s1", batch[:20]).session
        for rest in ([], batch[20:]):
            if rest:
                append(ada, "s1", rest)
            form(session)
            build(session, lag=0)
        ada.refresh_from_db()
        assert {"pottery", "rowing", "knitting", "chess"} <= set(ada.interests)
        return session

    @pytest.mark.slow
    def test_row_10_only_interests_stated_in_a_retracted_turn_are_removed(
        self, session: Session, ada: UserProfile
    ) -> None:
        retract(session, [20], reason="planted", requested_by="test")
        ada.refresh_from_db()
        assert {"pottery", "rowing"} <= set(ada.interests) and "knitting" not in ada.interests
        work_off()
        ada.refresh_from_db()
        assert {"pottery", "rowing", "chess"} <= set(ada.interests)
        assert "knitting" not in {*ada.interests, *ada.preferred_topics}

    @pytest.mark.slow
    def test_row_10_an_interest_is_removed_even_if_its_moment_was_deleted(
        self, session: Session, ada: UserProfile
    ) -> None:
        session.moments.all().delete()
        retract(session, [20], reason="planted", requested_by="test")
        work_off()
        ada.refresh_from_db()
        assert "knitting" not in ada.interests and {"pottery", "rowing", "chess"} <= set(ada.interests)

    @pytest.mark.slow
    def test_an_undone_retraction_restores_interests(self, session: Session, ada: UserProfile) -> None:
        def told() -> list[Any]:
            ada.refresh_from_db()
            return [ada.summary, ada.interests, ada.preferred_topics]

        before = told()
        retraction = retract(session, [20], reason="planted", requested_by="test")
        work_off()
        undo_retraction(retraction, requested_by="test")
        work_off()
        assert told() == before


class TestRefused:
    """Bad input gets a clear error and changes nothing."""

    @pytest.fixture
    def planted(self, ada: UserProfile) -> Session:
        session = poisoned(ada, 5, 6)
        work_off()
        build(session, lag=0)
        return session

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("sequences", "told"), [([], "at least one"), ([3, 99], "no turn 99"), ([4, 5], "turn 5 is already retracted")]
    )
    def test_the_error_names_turns_that_cannot_be_retracted(
        self, planted: Session, sequences: list[int], told: str
    ) -> None:
        retract(planted, [5], reason="planted", requested_by="test")
        before = everything()
        with pytest.raises(CannotRetract, match=told):
            retract(planted, sequences, reason="x", requested_by="test")
        assert everything() == before

    @pytest.mark.slow
    def test_retractions_are_undone_newest_first(self, planted: Session) -> None:
        before = comparable()
        first = retract(planted, [5], reason="planted", requested_by="test")
        second = retract(planted, [6], reason="planted too", requested_by="test")
        work_off()
        with pytest.raises(CannotRetract, match=f"Undo {second.retraction_id} first"):
            undo_retraction(first, requested_by="test")
        undo_retraction(second, requested_by="test")
        work_off()
        assert planted.messages.get(sequence=5).retracted_at and not planted.messages.get(sequence=6).retracted_at
        assert_each_compacted_turn_is_in_exactly_one_moment(planted)
        undo_retraction(first, requested_by="test")
        work_off()
        assert comparable() == before
        with pytest.raises(CannotRetract, match="already undone"):
            undo_retraction(first, requested_by="test")

    @pytest.mark.slow
    def test_a_retraction_of_a_deleted_session_or_turns_cannot_be_undone(self, planted: Session) -> None:
        retraction = retract(planted, [5], reason="planted", requested_by="test")
        planted.messages.filter(sequence=5).delete()
        with pytest.raises(CannotRetract, match="no longer in the transcript"):
            undo_retraction(retraction, requested_by="test")
        planted.delete()
        with pytest.raises(CannotRetract, match="session of this retraction was deleted"):
            undo_retraction(retraction, requested_by="test")

    def test_archived_turns_must_be_restored_before_an_undo(self, planted: Session) -> None:
        month = START.date().replace(day=1)
        counts = {"turn_count": 3, "byte_count": 9, "first_sequence": 0, "last_sequence": 2}
        planted.archives.create(user=planted.user, month=month, name="a", sha256="", **counts)
        planted.messages.filter(sequence__lt=3).delete()
        Session.objects.filter(pk=planted.pk).update(kept_from_sequence=3)
        with pytest.raises(CannotRetract, match="Restore the session first"):
            retract(planted, None, reason="x", requested_by="test")
        assert not Retraction.objects.exists()

    def test_a_session_with_only_archived_turns_must_be_restored_first(self, planted: Session) -> None:
        month = START.date().replace(day=1)
        counts = {"turn_count": 3, "byte_count": 9, "first_sequence": 0, "last_sequence": 2}
        planted.archives.create(user=planted.user, month=month, name="a", sha256="", **counts)
        planted.messages.turns().archive()
        with pytest.raises(CannotRetract, match="turns of the session are archived"):
            retract(planted, None, reason="x", requested_by="test")

    def test_a_turn_with_archived_text_must_be_restored_first(self, planted: Session) -> None:
        planted.messages.turns().filter(sequence=3).archive()
        with pytest.raises(CannotRetract, match="turn 3 is archived"):
            retract(planted, [3], reason="x", requested_by="test")

    @pytest.mark.slow
    def test_a_key_taken_by_another_session_meanwhile_stays_with_it(self, ada: UserProfile) -> None:
        session = talk(ada, 20, session_id="one")
        build(session, lag=0)
        key = Moment.objects.get().key
        retraction = retract(session, None, reason="x", requested_by="test")
        build(talk(ada, 20, session_id="two"), lag=0)
        undo_retraction(retraction, requested_by="test")
        keys = Moment.objects.order_by("source_session__session_id").values_list("key", flat=True)
        assert list(keys) == [f"{key}-2", key]

    @pytest.mark.slow
    def test_people_whose_keys_were_taken_meanwhile_get_new_keys(self, ada: UserProfile) -> None:
        session = talk(ada, 20)
        form(session)
        known = session.atoms.filter(is_candidate=False)[0]
        for key, relationship in (("anna", "sister"), ("anna-2", "dentist")):
            known.pk, known.atom_id, known.content = None, uuid4(), f"The {relationship} has bees."
            known.about = KnownPerson.objects.create(user=ada, key=key, name="Anna", relationship=relationship)
            known.save(force_insert=True)
        retraction = retract(session, None, reason="x", requested_by="test")
        assert not KnownPerson.objects.exists()
        KnownPerson.objects.create(user=ada, key="anna", name="Anna", relationship="neighbour")
        undo_retraction(retraction, requested_by="test")
        assert list(KnownPerson.objects.order_by("pk").values_list("key", flat=True)) == ["anna-3", "anna-2", "anna"]

    @pytest.mark.slow
    def test_turns_retracted_before_a_build_are_built_after_an_undo(self, ada: UserProfile) -> None:
        session = talk(ada, 40)
        retraction = retract(session, [3, 4], reason="x", requested_by="test")
        form(session)
        build(session, lag=0)
        undo_retraction(retraction, requested_by="test")
        work_off()
        assert_each_compacted_turn_is_in_exactly_one_moment(session)
        assert session.messages.get(sequence=3).moment is not None
        formed = Job.objects.get(process="form_memories", result__again=True).result
        assert (formed["first_sequence"], formed["last_sequence"]) == (3, 4)


# These record events or can be rebuilt.
LOGS = (
    "moments_app_enginecall",
    "moments_app_job",
    "moments_app_retraction",
    "moments_app_servedline",
    "moments_app_statementchange",
    "moments_app_vocabulary",
    "moments_app_word",
    "sessions_app_dailyusage",
    "sessions_app_event",
)
STAMPS = re.compile(r'"(updated_at|last_updated_at|retraction_count|embedded_sequence|counted_message_count)":[^,}]*')


def comparable() -> dict[str, list[str]]:
    return {table: [STAMPS.sub("", text) for text in texts] for table, texts in everything(but=LOGS).items()}
