"""Daily limits on model calls: jobs wait for the next day, and none is lost."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone
from pytest_django.fixtures import Settings

from memoryproject.status.checks import judge
from moments_app.engines.interface import CallRecord
from moments_app.jobs.runner import run_job
from moments_app.models import EmbeddingModel, EngineCall, Job
from moments_app.reports.housekeeping import housekeeping
from moments_app.reports.overview import job_groups
from sessions_app.models import ApiKey, Application, DailyUsage, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.models.daily_limit import tomorrow
from tests.support.api import Api
from tests.support.daily_limits import limit, next_day, used
from tests.support.jobs import running, work_off
from tests.support.openai_server import OpenAIServer
from tests.support.transcript import talk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("model_server")]


@pytest.fixture(autouse=True)
def _prices(model_server: OpenAIServer, settings: Settings) -> None:
    settings.ENGINE = settings.ENGINE.model_copy(update={"prices": {"gpt-4.1-mini": (0.4, 1.6)}})


@pytest.fixture
def cleo(transactional_db: None) -> UserProfile:
    """A person of another application."""
    return UserProfile.objects.create(application=Application.objects.create(name="other"), user_id="cleo")


def asked(user: UserProfile, session_id: str = "s1") -> Job:
    session = talk(user, 50, session_id=session_id)
    return Job.objects.request("build_moments", session, requested_by="test", force=True)


def ran(job: Job) -> Job:
    run_job(job.job_id)
    job.refresh_from_db()
    return job


@pytest.mark.slow
@pytest.mark.parametrize(
    ("most", "told"),
    [
        (
            {"model_calls": 1},
            "The daily limit application-model-calls is reached: 1 model calls a day for this application.",
        ),
        (
            {"usd": Decimal("0.000072")},
            "The daily limit application-usd is reached: 0.000072 USD a day for this application.",
        ),
    ],
)
def test_jobs_over_an_applications_call_limit_wait_until_the_next_day(
    ada: UserProfile, cleo: UserProfile, most: dict[str, Any], told: str
) -> None:
    limit(ada.application, **most)
    assert ran(asked(ada)).status == "completed"
    assert (used(ada.application).model_calls, used(ada.application).usd) == (1, Decimal("0.000072"))
    put_off = ran(asked(ada, "s2"))
    assert (put_off.status, put_off.attempts, put_off.held_by) == ("queued", 0, "budget")
    assert put_off.error == f"Waiting for the next day: {told}"
    assert put_off.run_after == tomorrow()
    assert ran(asked(cleo)).status == "completed"
    next_day()
    Job.objects.filter(pk=put_off.pk).update(run_after=timezone.now())  # as at midnight
    assert ran(put_off).status == "completed"
    assert EngineCall.objects.count() == 3


@pytest.mark.slow
def test_due_jobs_over_a_limit_wait_together(ada: UserProfile, cleo: UserProfile) -> None:
    limit(ada.application, model_calls=1)
    jobs = [asked(ada, f"s{number}") for number in range(4)]
    others = asked(cleo)
    assert ran(jobs[0]).status == "completed"
    assert ran(jobs[1]).held_by == "budget"
    assert [Job.objects.get(pk=job.pk).held_by for job in jobs[2:]] == ["budget", "budget"]
    assert Job.objects.get(pk=others.pk).is_due
    [group] = [group for group in job_groups(Job.objects.all()) if group.waits_for == "budget"]
    assert group.number == 3
    assert any("3 jobs have been waiting for the next day" in reason for reason in judge().reasons)


@pytest.mark.slow
def test_waiting_jobs_continue_when_the_limit_is_raised_or_removed(ada: UserProfile) -> None:
    made = limit(ada.application, model_calls=1)
    ran(asked(ada))
    put_off = [ran(asked(ada, f"s{number}")) for number in (2, 3)]
    made.model_calls = 2
    made.save()
    assert [ran(job).status for job in put_off] == ["completed", "queued"]
    assert Job.objects.get(pk=put_off[1].pk).held_by == "budget"
    made.delete()
    assert ran(put_off[1]).status == "completed"


@pytest.mark.slow
def test_settings_limit_applications_without_a_limit_in_the_admin(
    ada: UserProfile, cleo: UserProfile, settings: Settings
) -> None:
    settings.DAILY_LIMITS = settings.DAILY_LIMITS.model_copy(update={"application_model_calls": 1})
    limit(cleo.application, model_calls=2)
    states = {user.user_id: [ran(asked(user, f"s{n}")).status for n in range(3)] for user in (ada, cleo)}
    assert states == {"ada": ["completed", "queued", "queued"], "cleo": ["completed", "completed", "queued"]}


@pytest.mark.slow
def test_model_calls_of_jobs_count_for_the_key_that_caused_them(
    service: Api, ada: UserProfile, bo: UserProfile
) -> None:
    key = ApiKey.objects.get(name="service")
    for user in (ada, bo):
        talk(user, 50)
    limit(key, model_calls=1)
    for name in ("ada", "bo"):
        assert service.post("moments/build", user_id=name, session_id="s1", force=True).status_code == 202
    first, second = Job.objects.filter(process="build_moments").order_by("id")
    assert {first.key, second.key} == {key}
    assert ran(first).status == "completed"
    assert "key-model-calls" in ran(second).error
    assert used(key).model_calls == used(key.application).model_calls == 1
    limit(key, model_calls=0)
    assert ran(second).status == "completed"


@pytest.mark.slow
def test_only_jobs_of_the_limited_application_wait(ada: UserProfile, bo: UserProfile, cleo: UserProfile) -> None:
    limit(ada.application, model_calls=1)
    first, *rest = [asked(user) for user in (ada, bo, UserProfile.objects.ensure("dora", DEFAULT))]
    assert ran(first).status == "completed"
    assert "The daily limit application-model-calls is reached" in ran(rest[0]).error
    assert Job.objects.get(pk=rest[1].pk).held_by == "budget"
    assert ran(asked(cleo)).status == "completed"
    assert (used(ada.application).model_calls, used(cleo.application).model_calls) == (1, 1)


def test_jobs_requested_by_a_job_count_for_the_same_key(service: Api, ada: UserProfile, settings: Settings) -> None:
    settings.ENGINE = settings.ENGINE.model_copy(update={"provider": "extractive"})
    talk(ada, 12, text="From now on always begin with the kiln, please.")
    service.post("sessions/s1/compact", user_id="ada")
    work_off()
    assert set(Job.objects.values_list("process", "key__name")) > {("digest_session", "service")}
    assert set(Job.objects.values_list("key__name", flat=True)) == {"service"}


def test_a_job_whose_key_is_deleted_while_it_runs_completes_and_requests_jobs_without_a_key(
    service: Api, ada: UserProfile, model_server: OpenAIServer
) -> None:
    talk(ada, 12)
    service.post("sessions/s1/compact", user_id="ada")
    [job] = Job.objects.filter(key__name="service")
    with running(model_server, job):
        ApiKey.objects.get(name="service").delete()
    assert Job.objects.filter(pk=job.pk, status="completed", attempts=1).exists()
    assert [requested.key for requested in Job.objects.filter(requested_by=f"job:{job.job_id}")] == [None]


def test_jobs_without_model_calls_continue(ada: UserProfile, settings: Settings) -> None:
    limit(ada.application, model_calls=1, usd=1)
    ran(asked(ada))
    settings.ENGINE = settings.ENGINE.model_copy(update={"provider": "extractive"})
    assert ran(asked(ada, "s2")).status == "completed"


def test_searches_skip_the_model_when_the_limit_is_reached(
    service: Api, ada: UserProfile, embeddings_server: OpenAIServer
) -> None:
    EmbeddingModel.objects.create(name="test-embedder", dimensions=64, is_active=True)
    talk(ada, 3)
    limit(ada.application, model_calls=2)
    answers = [service.post("memory/search", user_id="ada", query=f"kilns {n}") for n in range(3)]
    assert [answer.json()["degraded"] for answer in answers] == [False, False, True]
    assert used(ada.application).model_calls == 2


def test_a_call_for_a_person_erased_meanwhile_is_recorded(ada: UserProfile) -> None:
    job = asked(ada)
    claimed = Job.objects.claim(job.job_id)
    UserProfile.objects.filter(pk=ada.pk).delete()
    EngineCall.objects.record(CallRecord("moments", "openai:gpt", 5), job=claimed)
    assert EngineCall.objects.get().job is None


def test_usage_is_kept_as_long_as_job_records(ada: UserProfile, settings: Settings) -> None:
    today = timezone.now().date()
    for days in (0, settings.JOBS.keep_days + 1):
        DailyUsage.objects.create(application=ada.application, day=today - timedelta(days=days))
    assert housekeeping().daily_usage == 1
    assert DailyUsage.objects.get().day == today
