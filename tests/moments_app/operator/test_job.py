"""The pages of jobs."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from moments_app.models import Circuit, EngineCall, Job, Moment
from moments_app.operator.admin.job import STATES
from sessions_app.models import Session, UserProfile
from tests.support.jobs import build
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, PLANTED, change_url, list_url, page, queries_of
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def failed(ada: UserProfile) -> Job:
    job = build(talk(ada, 10))
    Job.objects.filter(pk=job.pk).update(status=Job.Status.FAILED, error="The model is away.", attempts=5)
    return job


@pytest.fixture
def queued(bo: UserProfile) -> Job:
    return Job.objects.request("build_moments", talk(bo, 60), requested_by="operator:eva", force=True)


def url(verb: str, job: Job) -> str:
    return reverse(f"admin:moments_app_job_{verb}", args=[job.pk])


def history(job: Job) -> list[str]:
    return [entry.get_change_message() for entry in LogEntry.objects.filter(object_id=job.pk)]


class TestList:
    """Searching for jobs."""

    @pytest.mark.slow
    def test_only_failed_jobs_are_retried(self, root: Client, failed: Job, bo: UserProfile) -> None:
        completed, other = build(talk(bo, 60)), build(talk(bo, 60, session_id="s2"))
        data = {"action": "retry", "_selected_action": [failed.pk, completed.pk, other.pk]}
        asked = root.post(list_url(Job), data).content.decode()
        assert "3 selected" in asked and "Retry these jobs" in asked
        failed.refresh_from_db()
        assert failed.status == Job.Status.FAILED
        data["sure"] = "1"
        shown = root.post(list_url(Job), data, follow=True).content.decode()
        assert "is queued again" in shown
        reason = "Only failed and cancelled jobs can be retried. This job is completed. (2×)"
        assert f"Skipped 2 jobs: {reason}" in shown and shown.count("Only failed") == 1
        failed.refresh_from_db()
        completed.refresh_from_db()
        assert (failed.status, completed.status) == (Job.Status.QUEUED, Job.Status.COMPLETED)

    def test_many_changed_jobs_are_only_counted(self, root: Client, ada: UserProfile) -> None:
        sessions = [talk(ada, 1, session_id=f"s{number}") for number in range(4)]
        jobs = [Job.objects.request("build_moments", session, requested_by="test") for session in sessions]
        data = {"action": "cancel", "_selected_action": [job.pk for job in jobs], "sure": "1"}
        shown = root.post(list_url(Job), data, follow=True).content.decode()
        assert "Changed 4 jobs." in shown and "is cancelled" not in shown
        assert all(history(job) == ["Cancelled."] for job in jobs)

    def test_only_queued_jobs_are_cancelled(self, root: Client, failed: Job, queued: Job) -> None:
        data = {"action": "cancel", "_selected_action": [failed.pk, queued.pk]}
        assert "Cancel these jobs" in root.post(list_url(Job), data).content.decode()
        queued.refresh_from_db()
        assert queued.status == Job.Status.QUEUED
        data["sure"] = "1"
        shown = root.post(list_url(Job), data, follow=True).content.decode()
        assert f"{queued} is cancelled" in shown
        assert "Skipped 1 job: " in shown and "This job is failed" in shown
        queued.refresh_from_db()
        assert queued.result["cancelled_by"] == "operator:root"
        assert (history(queued), history(failed)) == (["Cancelled."], [])

    def test_the_sidebar_shows_the_number_of_failed_jobs(self, root: Client, ada: UserProfile) -> None:
        assert "rem-badge-count" not in page(root, list_url(Job))
        job = build(talk(ada, 10))
        Job.objects.filter(pk=job.pk).update(status=Job.Status.FAILED)
        assert '<span class="rem-badge-count">1</span>' in page(root, list_url(UserProfile))
        again = [Job(process="embed", status=Job.Status.FAILED, requested_by="test") for _ in range(120)]
        Job.objects.bulk_create(again)
        assert '<span class="rem-badge-count">99+</span>' in page(root, list_url(UserProfile))

    @pytest.mark.slow
    def test_a_job_is_found_by_id_and_by_subject(self, root: Client, failed: Job, queued: Job) -> None:
        found = {term: page(root, list_url(Job), q=term) for term in (str(failed.job_id), "ad", "s1", "12")}
        assert {term: change_url(failed) in shown for term, shown in found.items()} == {
            str(failed.job_id): True,
            "ad": True,
            "s1": True,
            "12": False,
        }
        assert change_url(queued) in found["s1"] and change_url(queued) not in found["ad"]

    @pytest.mark.slow
    def test_each_state_lists_its_jobs(self, root: Client, ada: UserProfile) -> None:
        now = timezone.now()
        rows: dict[str, dict[str, Any]] = {
            "due": {},
            "waiting": {"run_after": now + timedelta(hours=1)},
            "held": {"circuit": Circuit.objects.create(engine="openai:gpt", work="text", state="open")},
            "running": {"status": "processing", "heartbeat_at": now},
            "stuck": {"status": "processing", "heartbeat_at": now - timedelta(hours=1)},
            "failed": {"status": "failed"},
            "completed": {"status": "completed"},
            "cancelled": {"status": "skipped", "result": {"cancelled_by": "x"}},
            "skipped": {"status": "skipped"},
        }
        jobs = {}
        for state, fields in rows.items():
            jobs[state] = Job.objects.request("embed", talk(ada, 2, session_id=state), requested_by="test")
            Job.objects.filter(pk=jobs[state].pk).update(**fields)
        found = {
            state: {name for name, job in jobs.items() if change_url(job) in page(root, list_url(Job), state=state)}
            for state in STATES
        }
        both = {"running": {"running", "stuck"}, "skipped": {"skipped", "cancelled"}}
        assert found == {state: both.get(state, {state}) for state in STATES}

    def test_the_process_filter_offers_processes_of_recent_jobs(self, root: Client, failed: Job, queued: Job) -> None:
        Job.objects.filter(pk=queued.pk).update(process="settle")
        shown = page(root, list_url(Job), process="settle")
        assert change_url(queued) in shown and change_url(failed) not in shown


class TestPage:
    """The page of a job."""

    def test_a_failed_job_shows_its_error_and_can_be_retried(self, root: Client, failed: Job) -> None:
        shown = page(root, change_url(failed))
        assert "The model is away." in shown
        assert url("retry", failed) in shown and url("cancel", failed) not in shown
        assert root.post(url("retry", failed)).status_code == 302
        failed.refresh_from_db()
        assert (failed.status, history(failed)) == (Job.Status.QUEUED, ["Retried."])

    def test_a_waiting_job_shows_its_next_attempt(self, root: Client, queued: Job) -> None:
        Job.objects.update(attempts=2, error="Timed out.", run_after=timezone.now() + timedelta(minutes=5))
        shown = page(root, change_url(queued))
        assert "attempt 3 of 6" in shown and "minutes from now" in shown
        assert "Timed out." in shown and "operator eva" in shown

    def test_a_cancelled_job_names_who_cancelled_it(self, root: Client, queued: Job) -> None:
        shown = root.post(url("cancel", queued), follow=True).content.decode()
        assert "Cancelled by operator root." in shown
        assert url("retry", queued) in shown
        again = root.post(url("cancel", queued), follow=True).content.decode()
        assert "Only queued and running jobs can be cancelled" in again

    def test_a_completed_job_shows_its_input_and_results(self, root: Client, ada: UserProfile) -> None:
        session = talk(ada, 120)
        job = build(session)
        EngineCall.objects.create(job=job, purpose="moment-builder", engine="openai:m", latency_ms=5, ok=True)
        shown = page(root, change_url(job))
        for moment in Moment.objects.all():
            assert change_url(moment) in shown
        assert change_url(session) in shown and change_url(ada) in shown
        assert "openai:m" in shown
        assert url("retry", job) not in shown and url("cancel", job) not in shown

    def test_a_job_without_some_archived_turns_names_them(self, root: Client, ada: UserProfile) -> None:
        job = build(talk(ada, 60))
        without = {"unreadable": [[0, 23], [30, 30]], "session_id": "<s1>"}
        Job.objects.filter(pk=job.pk).update(result=job.result | without)
        shown = " ".join(root.get(change_url(job)).content.decode().split())
        assert "archived turns of &lt;s1&gt; that can't be read: 0–23, 30–30. <em>manage.py verify</em>" in shown

    def test_row_18_a_script_in_a_job_is_escaped(self, root: Client, failed: Job) -> None:
        Job.objects.update(error=PLANTED, params={PLANTED: PLANTED}, result={PLANTED: PLANTED}, requested_by=PLANTED)
        assert PLANTED not in page(root, change_url(failed))

    @pytest.mark.slow
    def test_the_page_takes_a_constant_number_of_queries(self, root: Client, ada: UserProfile) -> None:
        few, many = build(talk(ada, 30)), build(talk(ada, 600, session_id="s2"))
        for number in range(40):
            EngineCall.objects.create(job=many, purpose="p", engine=f"e{number}", latency_ms=5, ok=True)
        assert few.moments.count() < many.moments.count()
        assert queries_of(root, change_url(few)) == queries_of(root, change_url(many)) <= MAX_QUERIES

    @pytest.mark.slow
    def test_row_18_a_viewer_sees_a_job_but_cannot_change_it(self, failed: Job, queued: Job) -> None:
        viewer = operator("view_")
        shown = page(viewer, change_url(failed)) + page(viewer, change_url(queued))
        assert url("retry", failed) not in shown and url("cancel", queued) not in shown
        assert viewer.post(url("retry", failed)).status_code == 403
        assert viewer.post(url("cancel", queued)).status_code == 403
        assert [Job.objects.get(pk=job.pk).status for job in (failed, queued)] == ["failed", "queued"]

    def test_jobs_can_only_be_changed_by_post(self, root: Client, failed: Job) -> None:
        assert root.get(url("retry", failed)).status_code == root.get(url("cancel", failed)).status_code == 405
        assert root.post(reverse("admin:moments_app_job_retry", args=[0])).status_code == 404


class TestEngineCalls:
    """The list of engine calls."""

    @pytest.mark.slow
    def test_failed_calls_are_found_by_outcome_and_kind(self, built: Session, root: Client, failed: Job) -> None:
        calls = {
            kind: EngineCall.objects.create(
                job=failed, purpose="p", engine="openai:m", latency_ms=1, ok=not kind, error_kind=kind
            )
            for kind in ("", "timeout", "rejected")
        }

        def found(**query: str) -> set[str]:
            shown = page(root, list_url(EngineCall), **query)
            return {kind for kind, call in calls.items() if change_url(call) in shown}

        assert found(ok="0") == {"timeout", "rejected"}
        assert found(ok="1") == {""}
        assert found(error_kind="timeout") == {"timeout"}
        assert found(purpose="p", engine="openai:m") == set(calls)
        assert change_url(failed) in page(root, change_url(calls["timeout"]))

    @pytest.mark.slow
    def test_the_list_of_calls_takes_a_constant_number_of_queries(
        self, root: Client, failed: Job, ada: UserProfile
    ) -> None:
        EngineCall.objects.create(job=failed, purpose="p", engine="e", latency_ms=1, ok=True)
        few = queries_of(root, list_url(EngineCall))
        for number in range(60):
            EngineCall.objects.create(job=failed, purpose=f"p{number}", engine="e", latency_ms=1, ok=True)
        assert queries_of(root, list_url(EngineCall)) == few <= MAX_QUERIES
