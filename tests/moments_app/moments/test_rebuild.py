"""Rebuilding moments: the new ones replace the old ones, or nothing changes."""

import json
from typing import Any

import pytest

from moments_app.jobs.runner import run_job
from moments_app.models import Job, Moment, PromptResource
from moments_app.moments.partition import delete_moment
from moments_app.moments.rebuild import RebuildMoments
from moments_app.prompts import MOMENT_BUILDER_URI
from moments_app.provenance.retract import retract
from moments_app.provenance.undo import undo_retraction
from sessions_app.models import Event, Message, Session, UserProfile
from tests.support import openai_server as behave
from tests.support.jobs import (
    assert_chain_is_whole,
    assert_each_compacted_turn_is_in_exactly_one_moment,
    build,
    running,
    snapshot,
    work_off,
)
from tests.support.kept_rows import KeptRows
from tests.support.openai_server import OpenAIServer
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


def anew(handler: behave.Handler, body: dict[str, Any]) -> None:
    """Return moments with other names than the first time, and another profile."""
    answer = behave.moments_of(body)
    for number, moment in enumerate(answer["moments"]):
        moment["name"] = f"Anew {number}"
    handler.complete(json.dumps(answer | {"user_summary_update": "Somebody else."}))


def ask(session: Session) -> Job:
    """Queue a rebuild as an operator does."""
    return Job.objects.request(RebuildMoments.name, session, requested_by="operator:eve", force=True)


@pytest.fixture
def session(model_server: OpenAIServer, transactional_db: None, kept_rows: KeptRows) -> Session:
    """A session with three builds and live turns."""
    kept_rows.have("three builds", build_thrice)
    return Session.objects.get()


def build_thrice() -> None:
    for _ in range(3):
        session = talk(UserProfile.objects.ensure("ada"), 50)
        assert build(session).status == Job.Status.COMPLETED


class TestRebuild:
    """What a rebuild changes."""

    @pytest.mark.slow
    def test_all_moments_are_rebuilt_with_the_prompt_in_force(
        self, session: Session, model_server: OpenAIServer
    ) -> None:
        before = snapshot(session)
        resource = PromptResource.objects.get(uri=MOMENT_BUILDER_URI)
        resource.activate(resource.add_version("ANOTHER PROMPT", created_by="operator:eve"))
        model_server.always(anew)
        ask(session)
        work_off()
        after = snapshot(session)
        assert Job.objects.filter(process=RebuildMoments.name, status="completed").count() == 3
        assert {moment["name"][:4] for moment in after["moments"]} == {"Anew"}
        assert {moment["prompt_version_id"] for moment in after["moments"]} == {resource.versions.latest("id").pk}
        assert not {moment["id"] for moment in before["moments"]} & {moment["id"] for moment in after["moments"]}
        assert after["session"] == before["session"]
        assert after["user"] | {"updated_at": None} == before["user"] | {"updated_at": None}
        assert_each_compacted_turn_is_in_exactly_one_moment(session)
        assert_chain_is_whole(session.user)

    @pytest.mark.slow
    def test_partition_events_name_only_new_moments(self, session: Session, model_server: OpenAIServer) -> None:
        other = talk(session.user, 50, session_id="other")
        build(other)
        old = set(session.moments.values_list("key", flat=True))
        model_server.always(anew)
        ask(session)
        work_off()
        told = [event.payload or {} for event in session.messages.partitions().order_by("sequence")]
        assert [key for payload in told for key in payload["moment_keys"]] == list(
            session.moments.order_by("first_sequence").values_list("key", flat=True)
        )
        assert all(" Anew 0: " in payload["recent_moments_summary"] for payload in told)
        written = [event.content for event in Message.objects.partitions()]
        written += [json.dumps(row.payload) for row in Event.objects.filter(type="moments_built")]
        written += [json.dumps(job.result) for job in Job.objects.all()]
        assert not [text for text in written for key in old if f'"{key}"' in text]

    @pytest.mark.slow
    def test_a_failing_engine_changes_nothing(self, session: Session, model_server: OpenAIServer) -> None:
        before = snapshot(session)
        model_server.always(behave.error(500))
        job = ask(session)
        work_off()
        job.refresh_from_db()
        assert (job.status, job.attempts) == ("failed", 3)
        assert snapshot(session) == before

    @pytest.mark.slow
    def test_a_rebuild_that_failed_partially_continues_when_retried(
        self, session: Session, model_server: OpenAIServer
    ) -> None:
        second = session.moments.filter(first_sequence__gte=35).order_by("first_sequence")
        kept = list(second.values_list("pk", flat=True))
        model_server.queue(anew)
        model_server.always(behave.error(500))
        ask(session)
        work_off()
        failed = Job.objects.get(process=RebuildMoments.name, status="failed")
        assert list(second.values_list("pk", flat=True)) == kept
        assert_each_compacted_turn_is_in_exactly_one_moment(session)
        assert_chain_is_whole(session.user)
        model_server.always(anew)
        failed.restart()
        work_off()
        assert not session.moments.filter(pk__in=kept).exists()
        assert_each_compacted_turn_is_in_exactly_one_moment(session)

    @pytest.mark.slow
    def test_a_deleted_moment_is_not_restored(self, session: Session, model_server: OpenAIServer) -> None:
        model_server.always(anew)
        doomed = session.moments.order_by("first_sequence")[1]
        delete_moment(doomed, actor="operator:eve")
        ask(session)
        work_off()
        gone = (doomed.first_sequence, doomed.last_sequence)
        assert not session.messages.turns().filter(sequence__range=gone, moment__isnull=False).exists()
        assert session.moments.filter(first_sequence__gt=doomed.last_sequence, name__startswith="Anew").exists()
        assert_chain_is_whole(session.user)

    @pytest.mark.slow
    def test_archived_turns_keep_their_moments(self, session: Session, model_server: OpenAIServer) -> None:
        first = session.moments.earliest("first_sequence")
        session.messages.turns().filter(sequence__lte=first.last_sequence).delete()
        Session.objects.update(kept_from_sequence=first.last_sequence + 1)
        model_server.always(anew)
        ask(session)
        work_off()
        assert session.moments.exclude(name__startswith="Anew").get() == first

    def test_a_session_without_moments_is_skipped_with_a_reason(self, ada: UserProfile) -> None:
        job = run_job(ask(talk(ada, 5)).job_id)
        assert job is not None
        assert (job.status, "no moment" in job.result["reason"]) == ("skipped", True)


class TestMeanwhile:
    """Changes while the engine is working."""

    @pytest.mark.slow
    def test_row_2_a_moment_edited_during_a_rebuild_is_not_lost(
        self, session: Session, model_server: OpenAIServer
    ) -> None:
        model_server.always(anew)
        with running(model_server, job := ask(session)):
            moment = session.moments.earliest("first_sequence")
            moment.summary = "Corrected by hand."
            moment.save()
        job.refresh_from_db()
        assert (job.status, "changed" in job.error) == ("queued", True)
        assert Moment.objects.get(pk=moment.pk).summary == "Corrected by hand."

    @pytest.mark.slow
    def test_row_2_new_turns_can_be_built_during_a_rebuild(self, session: Session, model_server: OpenAIServer) -> None:
        model_server.always(anew)
        with running(model_server, ask(session)):
            talk(session.user, 60)
            Job.objects.request("build_moments", session, requested_by="test", force=True)
        work_off()
        assert_each_compacted_turn_is_in_exactly_one_moment(session)
        assert_chain_is_whole(session.user)


class TestRetraction:
    """Retracted turns and rebuilt moments."""

    @pytest.mark.slow
    def test_row_10_a_turn_retracted_after_a_rebuild_leaves_nothing(
        self, session: Session, model_server: OpenAIServer
    ) -> None:
        model_server.always(anew)
        ask(session)
        work_off()
        planted = set(session.moments.filter(first_sequence__gte=35).values_list("key", flat=True))
        retract(session, [40], reason="planted", requested_by="test")
        assert not planted & set(Moment.objects.values_list("key", flat=True))
        results = [json.dumps(job.result) for job in Job.objects.all()]
        results += [json.dumps(event.payload) for event in Event.objects.all()]
        assert not [text for text in results for key in planted if f'"{key}"' in text]
        work_off()
        assert_each_compacted_turn_is_in_exactly_one_moment(session)

    @pytest.mark.slow
    def test_a_retraction_before_a_rebuild_can_be_undone(self, session: Session, model_server: OpenAIServer) -> None:
        retraction = retract(session, [40], reason="by mistake", requested_by="test")
        work_off()
        model_server.always(anew)
        ask(session)
        work_off()
        undo_retraction(retraction, requested_by="test")
        work_off()
        assert_each_compacted_turn_is_in_exactly_one_moment(session)
        assert_chain_is_whole(session.user)
        assert session.messages.turns().get(sequence=40).moment is not None
