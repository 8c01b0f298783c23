"""The figures on the dashboard."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from memoryproject.schedules import RUN_TASK
from moments_app.context import receipts
from moments_app.jobs.process import Lane
from moments_app.jobs.runner import run_job
from moments_app.models import ContextUsage, EngineCall, Job, Moment
from moments_app.reports import overview
from sessions_app.models import Message, Session, UserProfile
from tests.support.api import Api
from tests.support.jobs import build
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


def call(**fields: Any) -> EngineCall:
    values = {"purpose": "p", "engine": "openai:m", "latency_ms": 5, "ok": True} | fields
    return EngineCall.objects.create(**values)


def context_of(service: Api, session_id: str, query: str) -> dict[str, Any]:
    answer = service.get("memory/context", user_id="ada", session_id=session_id, query=query)
    assert answer.status_code == 200
    return dict(answer.json())


def days_ago(number: int) -> datetime:
    return timezone.now() - timedelta(days=number)


def test_an_empty_site_has_no_figures(transactional_db: None) -> None:
    empty = overview.activity()
    assert len(empty.days) == overview.DAYS
    assert empty.today.date == timezone.now().date()
    assert (empty.sessions, empty.turns, empty.moments, empty.compacted, empty.builds) == (0, 0, 0, None, None)
    work = overview.backlog()
    assert (work.due, work.oldest_due, work.failed, work.worker_seen_at) == (0, None, 0, None)


def test_few_rows_are_counted_exactly(ada: UserProfile) -> None:
    build(talk(ada, 60))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE moments_app_moment")
    Moment.objects.all().delete()
    assert overview.estimated_rows(Moment) == 0


def test_turns_sessions_and_moments_are_counted_by_arrival_day(ada: UserProfile) -> None:
    build(talk(ada, 60))
    talk(ada, 10, session_id="older")
    Message.objects.filter(session__session_id="s1").update(created_at=days_ago(900), arrived_at=timezone.now())
    Message.objects.filter(session__session_id="older").update(created_at=timezone.now(), arrived_at=days_ago(3))
    Session.objects.filter(session_id="older").update(created_at=days_ago(40))
    made = overview.activity()
    assert (made.today.turns, made.days[-4].turns, made.total.turns) == (60, 10, 70)
    assert (made.today.sessions, made.total.sessions, made.sessions) == (1, 1, 2)
    assert made.today.moments == Moment.objects.count()
    Message.objects.filter(session__session_id="older").archive()  # turns can be archived within the month
    assert overview.activity().total.turns == 70


def test_the_compacted_share_is_the_share_of_tokens_before_live_windows(ada: UserProfile) -> None:
    talk(ada, 100)
    assert overview.activity().compacted == 0
    build(Session.objects.get(), lag=20)
    session = Session.objects.get()
    made = overview.activity()
    assert made.compacted == 1 - session.live_tokens / session.total_tokens
    assert (made.turns, made.live_turns) == (100, session.live_count)


def test_tokens_of_contexts_and_their_transcripts_are_summed_by_day(service: Api, ada: UserProfile) -> None:
    session = talk(ada, 60)
    talk(ada, 6, session_id="short")
    served = [context_of(service, name, query) for name, query in (("s1", "kiln"), ("s1", ""), ("short", ""))]
    receipts.waiting.flush()
    served += [context_of(service, "s1", "glaze")]
    receipts.waiting.flush()
    today = overview.activity().today
    assert today.contexts == 4
    assert today.context_tokens == sum(layer["tokens"] for context in served for layer in context["layers"])
    assert today.transcript_tokens == 3 * session.total_tokens + Session.objects.get(session_id="short").total_tokens
    ContextUsage.objects.update(day=timezone.now().date() - timedelta(days=2))
    made = overview.activity()
    assert (made.today.contexts, made.days[-3].contexts, made.total.contexts) == (0, 4, 4)
    ContextUsage.objects.update(day=timezone.now().date() - timedelta(days=31))
    assert overview.activity().total.contexts == 0


@pytest.mark.slow
def test_waiting_times_of_ended_jobs_are_grouped_by_lane_and_day(ada: UserProfile) -> None:
    now = timezone.now()

    def ended(process: str, seconds: float, days: int = 0, status: str = "completed") -> None:
        due = now - timedelta(days=days, seconds=seconds)
        at = now - timedelta(days=days)
        Job.objects.create(
            process=process, user=ada, status=status, run_after=due, started_at=at, finished_at=at, requested_by="test"
        )

    for number in range(21):
        ended("build_moments", number)
    ended("form_memories", 40, days=3)
    ended("roll_summary", 2)
    ended("roll_summary", -5)  # the clock of another host
    ended("run_task", 7)
    ended("run_task", 0, status="skipped")  # such as a canceled job, which never started
    ended("run_task", 900, status="failed")
    ended("embed", 900, days=31)
    waits = overview.activity().waits
    assert {lane.name: found.number for lane, found in waits.items()} == {"SCHEDULED": 1, "WAITED": 2, "BUILD": 22}
    builds = waits[Lane.BUILD]
    assert builds.p95_by_day == {now.date(): 19, (now - timedelta(days=3)).date(): 40}
    assert builds.p95 == pytest.approx(19.95)
    assert waits[Lane.WAITED].p95 == pytest.approx(1.9) and waits[Lane.SCHEDULED].p95 == 7


def test_calls_are_summed_by_day_and_failures_by_kind(transactional_db: None) -> None:
    call(input_tokens=100, output_tokens=20, cost_usd=Decimal("0.5"))
    call(input_tokens=10, cost_usd=None)
    call(ok=False, error_kind="timeout")
    call(ok=False, error_kind="timeout")
    EngineCall.objects.filter(pk=call(ok=False, error_kind="rejected").pk).update(created_at=days_ago(2))
    EngineCall.objects.filter(pk=call().pk).update(created_at=days_ago(31))
    made = overview.activity()
    assert (made.today.used.calls, made.total.used.calls) == (4, 5)
    used = made.today.used
    assert (used.tokens_in, used.tokens_out, used.tokens, used.failed) == (110, 20, 130, 2)
    assert (used.usd, used.unpriced) == (Decimal("0.5"), 1)
    assert (made.today.failures, made.total.failures) == ({"timeout": 2}, {"timeout": 2, "rejected": 1})


@pytest.mark.slow
def test_builds_requested_by_thresholds_are_timed(ada: UserProfile) -> None:
    for number in range(3):
        session = talk(ada, 250, session_id=f"s{number}")
        job = Job.objects.get(session=session)
        assert run_job(job.job_id) is not None
        ended = timezone.now()
        Job.objects.filter(pk=job.pk).update(finished_at=ended, queued_at=ended - timedelta(seconds=10 * (number + 1)))
    build(talk(ada, 60, session_id="forced"))
    builds = overview.activity().builds
    assert builds is not None
    assert (builds.number, builds.median, builds.p95) == (3, 20, 29)


def test_waiting_running_and_failed_jobs_are_distinguished(ada: UserProfile) -> None:
    now = timezone.now()
    states: list[dict[str, Any]] = [
        {"run_after": now - timedelta(minutes=5)},
        {"run_after": now + timedelta(minutes=5)},
        {"status": "processing", "heartbeat_at": now},
        {"status": "processing", "heartbeat_at": now - timedelta(minutes=5)},
        {"status": "failed"},
        {"status": "completed"},
    ]
    for number, state in enumerate(states):
        job = Job.objects.request("build_moments", talk(ada, 2, session_id=f"s{number}"), requested_by="test")
        Job.objects.filter(pk=job.pk).update(**state)
    work = overview.backlog()
    assert (work.due, work.later, work.running, work.stuck, work.failed) == (1, 1, 2, 1, 1)
    assert work.oldest_due == now - timedelta(minutes=5)
    assert work.worker_seen_at == now


def test_a_finished_schedule_shows_when_a_worker_ran(transactional_db: None) -> None:
    job = Job.objects.request_task("count_words", RUN_TASK, "count_words", requested_by="schedule")
    assert overview.backlog().worker_seen_at is None
    run_job(job.job_id)
    job.refresh_from_db()
    assert overview.backlog().worker_seen_at == job.finished_at


def test_rows_are_estimated_after_an_analyze(ada: UserProfile) -> None:
    build(talk(ada, 60))
    assert overview.estimated_rows(Moment) == Moment.objects.count()
