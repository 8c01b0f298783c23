"""Times in the future that work depends on are found, set to the present and reported."""

from datetime import timedelta
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.apps import apps
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session as Login
from django.db import connection, transaction
from django.db.models import DateTimeField
from django.utils import timezone
from django_otp.plugins.otp_static.models import StaticDevice
from django_otp.plugins.otp_totp.models import TOTPDevice
from django_q.models import Schedule
from pytest_django.fixtures import Settings

from memory_extras.oauth.models import Code, Consent
from memoryproject.database import clocks
from memoryproject.schedules import correct_next_runs, run_schedule, schedules
from memoryproject.status.checks import judge
from memoryproject.status.site_state import State
from moments_app.jobs.worker import recover_jobs
from moments_app.models import EmbeddingModel, Job, MemoryAtom, Moment, StoredItem
from moments_app.models.embedding import KINDS
from sessions_app.clock import TIMES_CORRECTED, TimeColumn, correct_times, report
from sessions_app.database.database_roles import WORKER_ROLE
from sessions_app.models import Event, Message, Session, UserProfile
from sessions_app.security import second_factor
from tests.support import processes
from tests.support.furnished import furnish
from tests.support.kept_rows import KeptRows
from tests.support.locks import row_locked
from tests.support.transcript import talk
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

DAY = timedelta(days=1)
AHEAD = {"a minute": timedelta(minutes=1), "a day": DAY, "a year": timedelta(days=365)}
DECLARED = [*clocks.checked_every_minute(), *clocks.checked_nightly(), *second_factor.TIMES]

SAYS_WHEN = "It says when something happened, and decides nothing."
CHOSEN = "An operator chooses it, or an application says it, and it may lie ahead."
IS_SET = "What counts is whether it is set."
EXCUSED = {
    SAYS_WHEN: """
        admin.LogEntry.action_time auth.User.last_login auth.User.date_joined axes.AccessLog.logout_time
        otp_static.StaticDevice.created_at otp_static.StaticDevice.last_used_at otp_totp.TOTPDevice.created_at
        otp_totp.TOTPDevice.last_used_at django_q.OrmQ.lock django_q.Task.started django_q.Task.stopped
        sessions_app.Application.created_at sessions_app.UserProfile.created_at sessions_app.UserProfile.updated_at
        sessions_app.ApiKey.created_at sessions_app.Session.created_at sessions_app.Archive.created_at
        moments_app.Job.started_at
        moments_app.PromptResource.active_since moments_app.PromptVersion.created_at
        moments_app.MemoryStream.last_updated_at moments_app.MemoryAtom.consolidated_at
        moments_app.MemoryAtom.last_accessed_at moments_app.Contradiction.created_at moments_app.Correction.created_at
        moments_app.Moment.created_at moments_app.Moment.updated_at moments_app.EmbeddingModel.created_at
        moments_app.FactEmbedding.created_at moments_app.MomentEmbedding.created_at moments_app.TurnEmbedding.created_at
        moments_app.ItemEmbedding.created_at
        moments_app.FailureGroup.first_seen_at moments_app.FailureHour.hour
        moments_app.KnownPerson.created_at lab.Probe.created_at lab.Probe.updated_at
        lab.PromptTrial.created_at
        moments_app.Release.created_at moments_app.Retraction.created_at moments_app.StatementChange.created_at
        moments_app.StoredItem.created_at moments_app.StoredItem.updated_at moments_app.Summary.completed_at
        moments_app.Vocabulary.counted_at moments_app.WebhookEndpoint.created_at moments_app.WebhookDelivery.sent_at
        oauth.Assistant.updated oauth.Consent.created_at oauth.Code.created oauth.Code.updated oauth.AccessToken.created
        oauth.AccessToken.updated oauth.RefreshToken.created oauth.RefreshToken.updated
        oauth2_provider.IDToken.created oauth2_provider.IDToken.updated oauth2_provider.DeviceGrant.last_checked
    """,
    CHOSEN: """
        sessions_app.ApiKey.expires_at sessions_app.Message.created_at
        moments_app.MemoryAtom.formed_at moments_app.MemoryAtom.valid_from moments_app.MemoryAtom.valid_until
        moments_app.MemoryAtom.ended_at moments_app.Correction.valid_until moments_app.Moment.starts_at
        moments_app.Moment.ends_at moments_app.FactEmbedding.said_at moments_app.MomentEmbedding.said_at
        moments_app.TurnEmbedding.said_at moments_app.ItemEmbedding.said_at moments_app.MemoryAtom.due_at
        moments_app.StoredItem.expires_at
        oauth.AccessToken.expires oauth.Assistant.cimd_expires_at oauth2_provider.IDToken.expires
        oauth2_provider.DeviceGrant.expires
    """,
    IS_SET: """
        oauth.Assistant.revoked_at oauth.Code.used_at oauth.RefreshToken.revoked
        sessions_app.ApiKey.revoked_at
        sessions_app.Message.retracted_at moments_app.MemoryAtom.reviewed_at
        moments_app.MemoryAtom.corrected_at moments_app.Contradiction.decided_at moments_app.Correction.undone_at
        moments_app.FailureGroup.muted_at moments_app.Release.revoked_at
        moments_app.Retraction.undone_at
    """,
    "It is not used: settings disable the feature.": """
        axes.AccessFailureLog.attempt_time axes.AccessLog.attempt_time axes.AccessAttemptExpiration.expires_at
    """,
}


def test_row_48_every_time_column_is_declared_or_excluded() -> None:
    there = {
        f"{model._meta.label}.{column.name}"
        for model in apps.get_models(include_auto_created=True)
        if not model._meta.proxy
        for column in model._meta.local_concrete_fields
        if isinstance(column, DateTimeField)
    }
    declared = {*map(str, DECLARED), "django_q.Schedule.next_run"}
    excused = {name for names in EXCUSED.values() for name in names.split()}
    assert there == declared | excused
    assert declared & excused == set()


@pytest.fixture
def furnished(kept_rows: KeptRows) -> None:
    """Add at least one row to every table with declared times."""
    kept_rows.have("everything", make_everything)


def make_everything() -> None:
    session = furnish()
    eve = User.objects.get(username="eve")
    for kind in (TOTPDevice, StaticDevice):
        kind.objects.create(user=eve, name="eve's")
    for status in Job.Status:
        Job.objects.create(process=f"of_{status}", status=status, requested_by="test")
    AccessAttempt.objects.create(ip_address="192.0.2.1", failures_since_start=5)
    consent = Consent.objects.get()
    code = {"code": "c", "expires": timezone.now(), "redirect_uri": "http://localhost:3333/callback", "scope": "read"}
    Code.objects.create(consent=consent, application=consent.assistant, **code)
    Login.objects.create(session_key="0" * 32, session_data="", expire_date=timezone.now())
    model = EmbeddingModel.objects.get()
    sources: dict[str, Any] = {
        "fact": MemoryAtom.objects.all(),
        "moment": Moment.objects.all(),
        "turn": Message.objects.turns(),
        "item": StoredItem.objects.all(),
    }
    for name, kind in KINDS.items():
        source = sources[name].filter(user=session.user).first()
        kind.objects.create(source=source, user=session.user, model=model, said_at=timezone.now(), refusal="Refused.")


@pytest.mark.slow
@pytest.mark.usefixtures("furnished")
@pytest.mark.parametrize("ahead", AHEAD.values(), ids=AHEAD)
def test_row_48_a_time_in_the_future_is_corrected_in_every_table(ahead: timedelta) -> None:
    for times in DECLARED:
        with transaction.atomic():
            pk = date(times, times.ahead + ahead)
            [done] = correct_times([times])
            now = timezone.now()
            assert getattr(times.model._base_manager.get(pk=pk), times.column) <= now, times
            assert (done.column, done.rows) == (str(times), 1)
            transaction.set_rollback(True)


@pytest.mark.slow
@pytest.mark.usefixtures("furnished")
def test_row_48_a_time_that_may_be_in_the_future_is_not_changed() -> None:
    correct_times(DECLARED)
    for times in DECLARED:
        with transaction.atomic():
            pk = date(times, times.ahead)
            before = getattr(times.model._base_manager.get(pk=pk), times.column)
            assert correct_times([times]) == []
            assert getattr(times.model._base_manager.get(pk=pk), times.column) == before
            transaction.set_rollback(True)


def date(times: TimeColumn, ahead: timedelta) -> Any:
    """Set the time of the first row that far in the future; return its primary key."""
    row = times.model._base_manager.filter(**times.where).order_by("pk").first()
    assert row, f"no row of {times} {times.where}"
    times.model._base_manager.filter(pk=row.pk).update(**{times.column: timezone.now() + ahead})
    return row.pk


def test_row_48_a_correction_degrades_the_site_and_is_logged(ada: UserProfile) -> None:
    Job.objects.request("embed", talk(ada, 3), requested_by="test")
    Job.objects.update(run_after=timezone.now() + DAY)
    correct_times(clocks.checked_every_minute())
    told = f"1 timestamp in moments_app.Job.run_after, up to {timezone.now() + DAY:%Y-%m-%d}"
    assert Event.objects.get(type=TIMES_CORRECTED).payload["told"].startswith(told)
    verdict = judge()
    assert verdict.state == State.DEGRADED
    assert any(told in reason and "clocks of all hosts" in reason for reason in verdict.reasons)
    correct_times(clocks.checked_every_minute())
    assert Event.objects.filter(type=TIMES_CORRECTED).count() == 1


@pytest.mark.slow
def test_row_48_a_heartbeat_in_the_future_blocks_no_work(ada: UserProfile, settings: Settings) -> None:
    settings.JOBS = settings.JOBS.model_copy(update={"stale_seconds": 0.5})
    [lost, waits] = [Job.objects.request("embed", talk(ada, 3, session_id=name), requested_by="test") for name in "ab"]
    Job.objects.claim(lost.job_id)
    Job.objects.filter(pk=lost.pk).update(heartbeat_at=timezone.now() + DAY)
    assert Job.objects.claim_next(["embed"], after=Job.FIRST_SUBJECT) is None
    correct_times(clocks.checked_every_minute())
    wait_until(lambda: recover_jobs().requeued == 1)
    assert Job.objects.claim_next(["embed"], after=Job.FIRST_SUBJECT) is not None
    assert waits.pk != lost.pk


def test_row_48_a_schedule_more_than_one_interval_ahead_is_corrected_while_the_site_runs() -> None:
    known = schedules()
    assert correct_next_runs() == []
    for ahead in AHEAD.values():
        for row in Schedule.objects.all():
            row.next_run = timezone.now() + timedelta(minutes=row.minutes or 24 * 60) + ahead
            row.save()
        put = correct_next_runs()
        report(put)
        assert len(put) == len(known)
        late = [row.name for row in Schedule.objects.all() if row.next_run > row.calculate_next_run(timezone.now())]
        assert late == []
    assert "count_words" in Event.objects.filter(type=TIMES_CORRECTED).latest("pk").payload["told"]


def test_row_48_times_that_matter_over_days_are_corrected_every_night(ada: UserProfile) -> None:
    session = talk(ada, 3)
    Message.objects.filter(sequence=1).update(arrived_at=timezone.now() + DAY)
    Session.objects.filter(pk=session.pk).update(restored_at=timezone.now() + DAY)
    run_schedule("put_times_back")
    assert not Message.objects.filter(arrived_at__gt=timezone.now()).exists()
    assert not Session.objects.filter(restored_at__gt=timezone.now()).exists()


@pytest.mark.slow
def test_row_48_a_locked_row_does_not_delay_other_tables(ada: UserProfile) -> None:
    session = talk(ada, 3)
    Job.objects.request("embed", session, requested_by="test")
    Job.objects.update(run_after=timezone.now() + DAY)
    Session.objects.update(last_activity_at=timezone.now() + DAY)
    with row_locked(session):
        assert [done.column for done in correct_times(clocks.checked_every_minute())] == ["moments_app.Job.run_after"]
    assert [done.column for done in correct_times(clocks.checked_every_minute())] == [
        "sessions_app.Session.last_activity_at"
    ]


FEW_ROWS = {"Circuit", "WebhookEndpoint", "ApiKey", "Assistant", "Code", "AccessAttempt"}


@pytest.mark.slow
def test_columns_checked_every_minute_have_an_index_or_few_rows() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        for times in clocks.checked_every_minute():
            plan = times.future_rows().order_by().values("pk")[:1].explain()
            assert "Seq Scan" not in plan or times.model.__name__ in FEW_ROWS, plan


@pytest.mark.slow
@pytest.mark.usefixtures("furnished")
def test_row_48_a_workers_login_has_the_rights_to_correct_times() -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION AUTHORIZATION {WORKER_ROLE}")
    try:
        for times in (*clocks.checked_every_minute(), *clocks.checked_nightly()):
            with transaction.atomic():
                date(times, times.ahead + DAY)
                assert len(correct_times([times])) == 1, times
                transaction.set_rollback(True)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("RESET SESSION AUTHORIZATION")


@pytest.mark.slow
def test_row_48_the_watchdog_corrects_times_in_the_future(ada: UserProfile) -> None:
    Job.objects.request("build_moments", talk(ada, 3), requested_by="test")
    Job.objects.update(run_after=timezone.now() + AHEAD["a year"])
    Schedule.objects.update(next_run=timezone.now() + AHEAD["a year"])
    with processes.worker():
        wait_until(lambda: not Job.objects.open().filter(process="build_moments").exists())
        wait_until(lambda: Event.objects.filter(type=TIMES_CORRECTED).count() == 2)
