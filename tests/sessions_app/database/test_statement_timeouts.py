"""How long requests wait for the database, and their responses then. Workers and commands have no limits."""

import threading
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from pytest_django import DjangoAssertNumQueries
from pytest_django.fixtures import Settings

from memoryproject.conf import LimitSettings
from sessions_app.database.transactions import Deadline, RequestKind, using_deadline, using_timeouts
from sessions_app.models import Message, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.row_security import acting_for
from tests.support.api import Api
from tests.support.locks import row_locked, table_locked
from tests.support.operator import operator
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)

NAMES = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
NONE = {"0"}


@pytest.fixture(autouse=True)
def _short(settings: Settings) -> None:
    settings.LIMITS = LimitSettings(lock_seconds=0.2)


def in_force() -> list[str]:
    """Return the limits that apply to a statement."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT " + ", ".join(f"current_setting('{name}')" for name in NAMES))
        return list(cursor.fetchone())


def append(api: Api, session_id: str, user_id: str) -> Any:
    said = [{"role": "user", "content": "Hello."}]
    return api.post(f"sessions/{session_id}/messages", user_id=user_id, messages=said)


def code_of(answer: Any) -> str:
    return str(answer.json()["errors"][0]["code"])


# --- responses ---


@pytest.mark.slow
def test_row_29_a_request_that_waits_for_a_locked_row_is_503_and_changes_nothing(
    service: Api, ada: UserProfile, bo: UserProfile
) -> None:
    session = talk(ada, 3)
    with row_locked(session):
        refused = append(service, session.session_id, "ada")
        assert append(service, "another", "ada").status_code == 201
        assert append(service, session.session_id, "bo").status_code == 201
        assert service.get(f"sessions/{session.session_id}", user_id="ada").status_code == 200
    assert (refused.status_code, code_of(refused), refused.json()["type"]) == (503, "busy", "server_error")
    assert refused["Retry-After"] == "1"
    assert Message.objects.filter(session=session).count() == 3
    assert append(service, session.session_id, "ada").status_code == 201
    session.refresh_from_db()
    assert session.message_count == Message.objects.filter(session=session).count() == 4


@pytest.mark.slow
def test_row_29_a_request_whose_key_cannot_be_looked_up_is_503(service: Api) -> None:
    with table_locked("sessions_app_apikey"):
        refused = service.get("sessions", user_id="ada")
    assert (refused.status_code, code_of(refused)) == (503, "busy")


@pytest.mark.slow
def test_row_29_a_statement_that_takes_too_long_is_canceled(service: Api, ada: UserProfile, settings: Settings) -> None:
    settings.LIMITS = settings.LIMITS.model_copy(update={"lock_seconds": 60, "request_seconds": 0.2})
    session = talk(ada, 3)
    with row_locked(session):
        refused = append(service, session.session_id, "ada")
    assert (refused.status_code, code_of(refused)) == (503, "busy")
    assert "too long" in refused.json()["errors"][0]["detail"]


@pytest.mark.slow
def test_an_operator_gets_a_page_with_503(ada: UserProfile) -> None:
    root, session = operator(), talk(ada, 3)
    with row_locked(session):
        refused = root.post(f"/admin/sessions_app/session/{session.pk}/hold/", {"held": "on"})
    assert (refused.status_code, refused["Retry-After"]) == (503, "1")
    assert "<h1>Not available right now</h1>" in refused.content.decode()
    session.refresh_from_db()
    assert not session.legal_hold


@pytest.mark.slow
def test_the_error_text_of_the_database_is_not_returned_or_logged(
    service: Api, ada: UserProfile, caplog: pytest.LogCaptureFixture
) -> None:
    session = talk(ada, 3)
    with row_locked(session):
        refused = append(service, session.session_id, "ada")
    told = refused.content.decode() + caplog.text
    assert "LockNotAvailable" in told
    assert "sessions_app_session" not in told


# --- the whole request ---


@pytest.mark.slow
def test_row_43_a_request_ends_at_its_deadline_and_frees_its_thread(
    service: Api, ada: UserProfile, settings: Settings
) -> None:
    settings.LIMITS = settings.LIMITS.model_copy(update={"lock_seconds": 60, "request_seconds": 60})
    session = talk(ada, 3)
    with row_locked(session), using_deadline(Deadline(0.3)):
        refused = append(service, session.session_id, "ada")
    assert (refused.status_code, code_of(refused)) == (503, "busy")
    assert "too long" in refused.json()["errors"][0]["detail"]
    assert append(service, session.session_id, "ada").status_code == 201  # on the same thread
    assert Message.objects.filter(session=session).count() == 4


def test_row_43_no_statement_starts_after_the_deadline(service: Api, ada: UserProfile) -> None:
    talk(ada, 3)
    with using_deadline(Deadline(0)):
        refused = service.get("sessions", user_id="ada")
    assert (refused.status_code, code_of(refused)) == (503, "busy")
    assert refused["Retry-After"] == "1"


@pytest.mark.slow
def test_row_43_each_statement_is_limited_to_the_remaining_time(settings: Settings) -> None:
    with (
        using_deadline(Deadline(1.5)),
        using_timeouts(RequestKind.CALL),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT pg_sleep(1.2)")
        left = float(in_force()[1].removesuffix("ms"))
    assert 0 < left <= 300


def test_row_43_a_failed_transaction_is_rolled_back_after_the_deadline(ada: UserProfile) -> None:
    ends = Deadline(60)
    with using_deadline(ends), using_timeouts(RequestKind.CALL), pytest.raises(OperationalError), transaction.atomic():
        UserProfile.objects.ensure("cleo")
        with transaction.atomic():
            ends._at = 0.0
            UserProfile.objects.ensure("dora")
    assert not UserProfile.objects.filter(user_id__in=["cleo", "dora"]).exists()


@pytest.mark.slow
def test_row_43_an_erasure_has_no_deadline(service: Api, ada: UserProfile, settings: Settings) -> None:
    settings.LIMITS = settings.LIMITS.model_copy(update={"lock_seconds": 60})
    session = talk(ada, 3)
    with row_locked(session) as other, using_deadline(Deadline(0.4)):
        threading.Timer(0.8, other.rollback).start()
        assert service.delete("users/ada").status_code == 200


# --- where limits apply ---


def test_all_statements_of_a_request_are_limited_without_extra_statements(
    ada: UserProfile, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    limits = ["200ms", "15s", "1min"]
    with using_timeouts(RequestKind.CALL), django_assert_num_queries(9):
        assert in_force() == limits
        with transaction.atomic():
            assert in_force() == limits
            assert in_force() == limits
        with acting_for("ada", application=DEFAULT):
            assert in_force() == limits


def test_limits_end_with_the_transaction(ada: UserProfile) -> None:
    with using_timeouts(RequestKind.CALL):
        in_force()
        with acting_for("ada", application=DEFAULT, for_write=True):
            in_force()
    assert {*in_force()} == NONE
    with transaction.atomic():
        assert {*in_force()} == NONE


def test_an_inner_block_overrides_the_limits_until_it_ends() -> None:
    with using_timeouts(RequestKind.CALL):
        with using_timeouts(RequestKind.LONG):
            assert in_force()[1] == "5min"
        assert in_force()[1] == "15s"


def test_limits_do_not_change_the_results_of_statements(ada: UserProfile) -> None:
    with using_timeouts(RequestKind.CALL):
        Session.objects.bulk_create(Session(user=ada, session_id=f"s{number}") for number in range(3))
        assert Session.objects.filter(user=ada).update(title="%s") == 3
        assert [session.title for session in Session.objects.iterator(chunk_size=1)] == ["%s"] * 3
        assert UserProfile.objects.raw("SELECT * FROM sessions_app_userprofile WHERE user_id = %s", ["ada"])[0] == ada


@pytest.mark.slow
def test_an_erasure_may_take_longer_than_a_call(service: Api, ada: UserProfile, settings: Settings) -> None:
    settings.LIMITS = settings.LIMITS.model_copy(update={"lock_seconds": 60, "request_seconds": 0.2})
    session = talk(ada, 3)
    with row_locked(session) as other:
        threading.Timer(0.6, other.rollback).start()
        assert service.delete("users/ada").status_code == 200


@pytest.mark.slow
def test_workers_and_commands_wait_without_a_limit(ada: UserProfile) -> None:
    session = talk(ada, 3)
    with row_locked(session) as other:
        threading.Timer(0.6, other.rollback).start()
        assert Session.objects.filter(pk=session.pk).update(title="Changed.") == 1


def test_a_vanished_database_host_is_detected() -> None:
    connection.ensure_connection()
    parameters = connection.connection.info.get_parameters()
    assert parameters["tcp_user_timeout"] == "15000"
    assert parameters["keepalives_idle"] == "15"
