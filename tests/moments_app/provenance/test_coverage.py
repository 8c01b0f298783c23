"""The coverage of turns by memory."""

from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django.fixtures import Settings

from moments_app.jobs.runner import run_job
from moments_app.models import Job, Moment
from moments_app.provenance.coverage import Coverage, coverage, queue_builds, uncovered
from sessions_app.models import Message, Session, UserProfile
from sessions_app.retention.restore import restore_archive
from sessions_app.retention.retain import retain
from tests.support import openai_server as behave
from tests.support.api import Api
from tests.support.commands import printed
from tests.support.jobs import build, work_off
from tests.support.openai_server import OpenAIServer
from tests.support.retention import covered_session
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


def places(user: UserProfile | None = None) -> dict[str, Any]:
    """Return the counts that are not 0."""
    return {name: value for name, value in vars(coverage(user)).items() if value and name != "oldest_waiting"}


def test_coverage_without_turns_is_complete(db: None) -> None:
    assert coverage() == Coverage()
    assert coverage().is_whole


def test_turns_are_in_moments_or_live(ada: UserProfile) -> None:
    build(talk(ada, 50))
    assert places() == {"in_moments": 35, "live": 15}
    assert coverage().oldest_waiting is None


def test_turns_before_a_digest_wait_for_the_next_build(ada: UserProfile) -> None:
    session = talk(ada, 20)
    run_job(Job.objects.request("digest_session", session, requested_by="test", force=True, params={"keep": 8}).job_id)
    assert places() == {"digested": 12, "live": 8}
    assert coverage().oldest_waiting == session.messages.order_by("sequence")[0].created_at
    assert not uncovered()


@pytest.mark.slow
def test_turns_of_a_job_are_reported_by_its_state(
    ada: UserProfile, model_server: OpenAIServer, settings: Settings
) -> None:
    session = talk(ada, 20)
    run_job(Job.objects.request("digest_session", session, requested_by="test", force=True).job_id)
    job = Job.objects.request("build_moments", session, requested_by="test", force=True, params={"lag": 0})
    assert places() == {"queued": 20}
    model_server.always(behave.error(500))
    settings.JOBS = settings.JOBS.model_copy(update={"backoff_seconds": 60, "max_attempts": 2})
    run_job(job.job_id)
    assert places() == {"held": 20}
    Job.objects.filter(pk=job.pk).update(run_after=timezone.now())
    run_job(job.job_id)
    assert places() == {"failed": 20}
    assert uncovered() == [session]
    model_server.always(behave.answer_well)
    queue_builds(requested_by="test")
    work_off()
    assert places() == {"in_moments": 10, "digested": 10}


def test_archived_and_retracted_turns_are_reported(ada: UserProfile) -> None:
    session = talk(ada, 20)
    session.messages.filter(sequence__lt=5).delete()
    Session.objects.update(kept_from_sequence=5)
    session.messages.filter(sequence=7).update(retracted_at=timezone.now())
    assert places() == {"archived": 5, "retracted": 1, "live": 14}


def test_row_4_a_missing_turn_is_reported(ada: UserProfile) -> None:
    session = build(talk(ada, 50)).session
    Message.objects.turns().filter(sequence__in=(3, 4)).update(moment=None)
    found = coverage()
    assert (found.missing, found.is_whole, uncovered()) == (2, False, [session])
    with pytest.raises(CommandError, match=r"missing: 2(?s:.*)see session s1 of ada"):
        call_command("coverage")


@pytest.mark.slow
def test_turns_of_a_deleted_moment_are_left_out_and_archived_like_others(
    service: Api, admin_client: Client, ada: UserProfile, archive_folder: Path
) -> None:
    session = build(talk(ada, 100), lag=0).session
    assert session is not None
    first, second, *_ = Moment.objects.order_by("id")
    assert service.delete(f"moments/{first.key}", user_id="ada").status_code == 204
    page = reverse("admin:moments_app_moment_delete", args=[second.pk])
    assert admin_client.post(page, {"post": "yes"}).status_code == 302
    out = second.last_sequence + 1
    assert places() == {"left_out": out, "in_moments": 100 - out}
    assert coverage().is_whole
    Session.objects.update(summarised_sequence=99)
    assert retain().archived_turns == 100


@pytest.mark.usefixtures("archive_folder")
def test_turns_are_counted_if_only_one_month_was_restored(ada: UserProfile) -> None:
    session = covered_session(ada, 6)
    retain()
    restore_archive(session, actor="test", month=session.archives.earliest("month").month)
    assert places() == {"in_moments": 3, "archived": 3}
    assert coverage(ada).is_whole


def test_row_15_counters_that_differ_from_the_rows_are_reported(ada: UserProfile, bo: UserProfile) -> None:
    session = talk(ada, 20)
    talk(bo, 20)
    session.messages.get(sequence=9).delete()
    assert (coverage().miscounted, coverage(bo).miscounted) == (1, 0)
    with pytest.raises(CommandError, match="miscounted: 1"):
        call_command("coverage")


def test_the_command_reports_and_requests_missing_work(ada: UserProfile) -> None:
    build(talk(ada, 50))
    told = printed("coverage", user="ada")
    assert "in moments: 35" in told and "oldest waiting: none" in told
    assert "queued: 0" in printed("coverage", queue=True)
    with pytest.raises(CommandError, match="no user 'nobody'"):
        call_command("coverage", user="nobody")


def test_row_9_coverage_counts_only_own_turns(service: Api, as_ada: Api, ada: UserProfile, bo: UserProfile) -> None:
    talk(ada, 3)
    talk(bo, 7)
    assert service.get("coverage", user_id="bo").json()["live"] == 7
    assert as_ada.get("coverage").json()["live"] == 3
    assert as_ada.get("coverage", user_id="bo").status_code == 404
    assert service.get("coverage", user_id="nobody").status_code == 404
    assert service.post("coverage", user_id="ada").json() == {"job_ids": []}


def test_the_command_rejects_an_unknown_application(db: None) -> None:
    with pytest.raises(CommandError, match="typo"):
        call_command("coverage", application="typo")
