"""Operators' lists read from a replica: a real one, that streams from the database of the run."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings as configured
from django.contrib.auth.models import User
from django.db import connection, connections
from django.test import Client
from pytest_django.fixtures import Settings

from sessions_app import replica
from sessions_app.admin.links import list_url
from sessions_app.models import Application, Event, UserProfile
from sessions_app.models.event import USER_READ
from sessions_app.models.login_limit import LoginLimit
from tests.support.operator import operator
from tests.support.standby import Standby, replica_at
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
    """The replica has Ada, and gets to know nothing more for a while; so what a list shows tells where it was read."""
    catch_up()
    there("SELECT pg_wal_replay_pause()::text")
    wait_until(lambda: there("SELECT pg_get_wal_replay_pause_state()") == "paused")
    yield
    there("SELECT pg_wal_replay_resume()::text")


@pytest.fixture
def bertil(paused: None) -> None:
    """Is known to the primary alone."""
    UserProfile.objects.ensure("bertil")


@pytest.fixture
def slow_writer(paused: None) -> Iterator[None]:
    """What is committed without waiting for the disk, as all is in tests, stays unwritten for seconds."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
        cursor.execute("SELECT pg_reload_conf()")
        yield
        cursor.execute("ALTER SYSTEM RESET wal_writer_delay")
        cursor.execute("SELECT pg_reload_conf()")


def people(client: Client) -> str:
    answer = client.get(list_url(UserProfile))
    assert answer.status_code == 200
    return str(answer.content)


def test_a_list_is_read_from_the_replica_and_the_reading_is_on_record_at_the_primary(
    eve: Client, bertil: None, ada: UserProfile
) -> None:
    page = people(eve)
    assert "ada" in page and "bertil" not in page
    answer = eve.get(list_url(UserProfile), {"q": "ada"})
    assert answer.status_code == 200
    assert Event.objects.filter(type=USER_READ, user_pk=ada.pk).exists()


def test_who_changed_something_sees_it_though_the_replica_does_not_have_it_yet(eve: Client, bertil: None) -> None:
    assert "bertil" not in people(eve)
    eve.post(list_url(UserProfile))
    assert "bertil" in people(eve)
    assert "bertil" not in people(operator("view_"))


def test_who_changed_something_sees_it_though_the_primary_has_not_even_written_it_out(
    eve: Client, slow_writer: None
) -> None:
    UserProfile.objects.ensure("cecilia")
    eve.post(list_url(UserProfile))
    assert "cecilia" in people(eve)


def test_row_35_a_limited_operator_sees_no_more_on_the_replica(ada: UserProfile) -> None:
    other = Application.objects.create(name="other")
    UserProfile.objects.ensure("zoe", other.pk)
    limited = operator("view_", "read_userprofile")
    LoginLimit.objects.create(login=User.objects.get(), application=other)
    catch_up()
    page = people(limited)
    assert "zoe" in page and "ada" not in page
    assert there("SELECT count(*) FROM sessions_app_userprofile") == 2


def test_one_that_is_gone_is_told_of_and_the_primary_is_read(eve: Client, standby: Standby, ada: UserProfile) -> None:
    catch_up()
    standby.stop()
    try:
        page = people(eve)
        assert "ada" in page and "the primary" in page
    finally:
        standby.start()
