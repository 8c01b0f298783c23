"""Old records of work are deleted, except those that others refer to."""

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.utils import timezone
from pytest_django.fixtures import Settings

from memoryproject.schedules import schedules
from moments_app.models import EngineCall, Job, Moment
from moments_app.reports.housekeeping import HousekeepingResult, housekeeping
from sessions_app.models import Event, UserProfile
from sessions_app.models.event import READINGS, USER_EXPORTED
from tests.support.jobs import build, count, work_off
from tests.support.openai_server import OpenAIServer
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


def age(days: int) -> None:
    then = timezone.now() - timedelta(days=days)
    Job.objects.exclude(finished_at=None).update(finished_at=then)
    EngineCall.objects.update(created_at=then)


def test_old_jobs_and_calls_without_results_are_deleted(ada: UserProfile, model_server: OpenAIServer) -> None:
    session = talk(ada, 50)
    build(session)
    build(session)  # no turns beyond the lag
    count(ada)
    age(29)
    assert housekeeping() == HousekeepingResult()
    age(31)
    assert housekeeping(dry_run=True) == HousekeepingResult(jobs=2, engine_calls=1)
    assert housekeeping() == HousekeepingResult(jobs=2, engine_calls=1)
    assert Moment.objects.filter(job=Job.objects.get()).exists()


def test_open_and_failed_jobs_stay(ada: UserProfile) -> None:
    for status in ("queued", "processing", "failed"):
        Job.objects.create(process=f"p-{status}", user=ada, status=status, requested_by="test")
    age(400)
    assert housekeeping() == HousekeepingResult()


def test_more_than_one_batch_is_deleted(ada: UserProfile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moments_app.reports.housekeeping.BATCH", 2)
    for _ in range(5):
        Job.objects.create(process="p", user=ada, status="skipped", requested_by="test", finished_at=timezone.now())
    age(31)
    assert housekeeping().jobs == 5


def test_row_35_readings_are_kept_for_the_configured_days_and_exports_permanently(
    ada: UserProfile, settings: Settings
) -> None:
    for days in (399, 401):
        for kind in (*READINGS, "moments_built"):
            Event.objects.create(type=kind, actor="operator:eve", user_pk=ada.pk)
        newest = Event.objects.order_by("-pk").values("pk")[: len(READINGS) + 1]
        Event.objects.filter(pk__in=newest).update(created_at=timezone.now() - timedelta(days=days))
    assert housekeeping(dry_run=True) == housekeeping() == HousekeepingResult(readings=1)
    assert Event.objects.readings_of(ada).count() == 3
    settings.READING_DAYS = 30
    assert housekeeping() == HousekeepingResult(readings=1)
    assert {event.type for event in Event.objects.readings_of(ada)} == {USER_EXPORTED}
    assert Event.objects.filter(type="moments_built").count() == 2


def test_each_schedule_has_a_dry_run(ada: UserProfile) -> None:
    talk(ada, 20)
    before = list(Job.objects.values())
    for name in schedules():
        call_command("run_schedule", name, dry_run=True, stdout=StringIO())
        assert list(Job.objects.values()) == before, name
    work_off()
