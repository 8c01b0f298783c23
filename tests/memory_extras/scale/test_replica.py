"""Lists, reports and exports read from a replica: a real one that streams from the test database."""

import zipfile
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pytest
from django.conf import settings as configured
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, connections
from django.http import FileResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django.fixtures import Settings

from memory_extras.scale import replica
from moments_app.models import EngineCall, Job
from sessions_app.admin.links import list_url, page_url
from sessions_app.models import Application, Event, Session, UserProfile
from sessions_app.models.application import DEFAULT, LoginLimit
from sessions_app.models.event import USER_EXPORTED, USER_READ
from sessions_app.people.export import export_user
from tests.support.api import Api
from tests.support.operator import operator
from tests.support.standby import Standby, replica_at
from tests.support.transcript import talk
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.slow(seconds=30),
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not configured.DATABASE_IS_EMBEDDED, reason="a standby is made of the embedded server"),
]


@pytest.fixture(scope="module")
def standby(django_db_setup: None) -> Iterator[Standby]:
    with Standby() as server:
        yield server


@pytest.fixture(autouse=True)
def second(transactional_db: None, standby: Standby, settings: Settings) -> Iterator[None]:
    settings.HAS_REPLICA = True
    with replica_at(standby.socket):
        yield


@pytest.fixture
def eve() -> Client:
    return operator()


def there(statement: str) -> Any:
    with connections[replica.ALIAS].cursor() as cursor:
        cursor.execute(statement)
        [value] = cursor.fetchone() or [None]
    return value


def here(statement: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        [value] = cursor.fetchone() or [None]
    return value


def catch_up() -> None:
    written = here("SELECT pg_current_wal_insert_lsn()::text")
    wait_until(lambda: there(f"SELECT pg_last_wal_replay_lsn() >= '{written}'"))


@pytest.fixture
def paused(ada: UserProfile, eve: Client) -> Iterator[None]:
    """Stop replication once the replica has Ada. Later rows in a list show that it was read from the primary."""
    catch_up()
    there("SELECT pg_wal_replay_pause()::text")
    wait_until(lambda: there("SELECT pg_get_wal_replay_pause_state()") == "paused")
    yield
    there("SELECT pg_wal_replay_resume()::text")


@pytest.fixture
def bertil(paused: None) -> None:
    """Create a person that only the primary has."""
    UserProfile.objects.ensure("bertil")


@pytest.fixture
def slow_writer(paused: None) -> Iterator[None]:
    """Delay writing commits to disk for seconds. Commits in tests don't wait for it."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
        cursor.execute("SELECT pg_reload_conf()")
        yield
        cursor.execute("ALTER SYSTEM RESET wal_writer_delay")
        cursor.execute("SELECT pg_reload_conf()")


def shown(answer: Any) -> list[str]:
    """Return the user ids of a list. Its page may contain a name by chance, for example in a hash."""
    assert answer.status_code == 200
    return [profile.user_id for profile in answer.context["cl"].result_list]


def people(client: Client) -> list[str]:
    return shown(client.get(list_url(UserProfile)))


def test_a_list_is_read_from_the_replica_and_the_reading_is_recorded_on_the_primary(
    eve: Client, bertil: None, ada: UserProfile
) -> None:
    assert people(eve) == ["ada"]
    answer = eve.get(list_url(UserProfile), {"q": "ada"})
    assert answer.status_code == 200
    assert Event.objects.filter(type=USER_READ, user_pk=ada.pk).exists()


def test_an_operator_sees_their_change_before_the_replica_has_it(eve: Client, bertil: None) -> None:
    assert "bertil" not in people(eve)
    eve.post(list_url(UserProfile))
    assert "bertil" in people(eve)
    assert "bertil" not in people(operator("view_"))


def test_an_operator_sees_their_change_before_the_primary_has_written_it(eve: Client, slow_writer: None) -> None:
    UserProfile.objects.ensure("cecilia")
    eve.post(list_url(UserProfile))
    assert "cecilia" in people(eve)


def test_row_35_a_limited_operator_is_limited_on_the_replica(ada: UserProfile) -> None:
    other = Application.objects.create(name="other")
    UserProfile.objects.ensure("zoe", other.pk)
    limited = operator("view_", "read_userprofile")
    LoginLimit.objects.create(login=User.objects.get(), application=other)
    catch_up()
    assert people(limited) == ["zoe"]
    assert there("SELECT count(*) FROM sessions_app_userprofile") == 2


def test_an_unavailable_replica_is_reported_and_the_primary_is_read(
    eve: Client, standby: Standby, ada: UserProfile
) -> None:
    catch_up()
    standby.stop()
    try:
        answer = eve.get(list_url(UserProfile))
        assert shown(answer) == ["ada"] and "the primary" in answer.content.decode()
    finally:
        standby.start()


# --- reports ---


def test_monthly_figures_are_read_from_the_replica(eve: Client, paused: None, ada: UserProfile) -> None:
    Session.objects.create(user=ada, session_id="s1")
    call = EngineCall.objects.create(purpose="embedding", engine="e", latency_ms=1, ok=True)
    assert eve.get(reverse("admin:index")).context["activity"].sessions == 0
    assert eve.get(page_url(EngineCall, "cost")).context["cost"].total.calls == 0
    assert EngineCall.objects.get() == call


def test_urgent_figures_are_read_from_the_primary(eve: Client, ada: UserProfile, paused: None) -> None:
    Job.objects.create(process="build_moments", user=ada, status=Job.Status.FAILED)
    assert len(eve.get(reverse("admin:index")).context["failed_jobs"]) == 1


def test_commands_that_count_all_turns_read_the_replica_with_any_login(ada: UserProfile) -> None:
    talk(ada, 3)
    connections[replica.ALIAS].settings_dict["USER"] = "memory_web"
    with CaptureQueriesContext(connections[replica.ALIAS]) as asked_there:
        assert "live: 3" in call_command("coverage")
        assert "moment-builder" in call_command("estimate", everything=True)
    assert "sessions_app_message" in statements(asked_there)


# --- exports ---


def statements(asked: CaptureQueriesContext) -> str:
    return "\n".join(query["sql"] for query in asked.captured_queries)


def messages_in(file: BytesIO) -> str:
    with zipfile.ZipFile(file) as export:
        return export.read("messages.jsonl").decode()


def downloaded(answer: Any) -> BytesIO:
    assert isinstance(answer, FileResponse)
    return BytesIO(answer.getvalue())


def test_row_35_an_export_is_read_from_the_replica_and_has_the_newest_turns(eve: Client, ada: UserProfile) -> None:
    talk(ada, 1, text="It rains in Turin.")
    with CaptureQueriesContext(connections[replica.ALIAS]) as asked_there:
        answer = eve.get(page_url(UserProfile, "export", ada.pk))
    assert "Turin" in messages_in(downloaded(answer))
    assert "sessions_app_message" in statements(asked_there)
    assert Event.objects.filter(type=USER_EXPORTED, user_pk=ada.pk).exists()


def test_an_export_is_read_from_the_primary_while_the_replica_lags(
    service: Api, ada: UserProfile, paused: None
) -> None:
    talk(ada, 1, text="It rains in Turin.")
    with CaptureQueriesContext(connections[replica.ALIAS]) as asked_there:
        assert "Turin" in messages_in(downloaded(service.get("users/ada/export")))
    assert "sessions_app_message" not in statements(asked_there)


def test_row_11_an_erased_person_is_not_exported_from_a_lagging_replica(
    service: Api, ada: UserProfile, paused: None
) -> None:
    service.delete("users/ada")
    assert there("SELECT count(*) FROM sessions_app_userprofile") == 1
    assert service.get("users/ada/export").status_code == 404


def test_an_export_interrupted_by_the_replica_is_rewritten_from_the_primary(ada: UserProfile, standby: Standby) -> None:
    talk(ada, 1, text="It rains in Turin.")
    is_running = True

    class Interrupted(BytesIO):
        """Stop the replica after the first write."""

        def write(self, data: Any) -> int:
            nonlocal is_running
            if is_running:
                standby.stop()
                is_running = False
            return super().write(data)

    file = Interrupted()
    try:
        assert export_user("ada", file, application=DEFAULT)["messages"] == 1
    finally:
        standby.start()
    with zipfile.ZipFile(file) as export:
        assert export.testzip() is None
        assert len(export.namelist()) == len(set(export.namelist()))
    assert messages_in(file).count("Turin") == 1
