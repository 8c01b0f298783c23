"""Logging in to the admin: limits on attempts, and expiry of logins."""

import time
from datetime import timedelta

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import User
from django.test import Client, RequestFactory
from django.utils import timezone
from pytest_django.fixtures import Settings

from memoryproject.logins import LAST_SEEN_AT, STARTED_AT, client_address
from sessions_app.models import Event
from tests.support.operator import operator

pytestmark = pytest.mark.django_db


def log_in(password: str, address: str = "192.0.2.1") -> int:
    """Try a password; return the status: 302 if logged in, 200 if rejected, 429 if locked out."""
    given = {"username": "root", "password": password}
    return Client(REMOTE_ADDR=address).post("/admin/login/?next=/admin/", given).status_code


@pytest.mark.slow
def test_row_36_an_address_is_locked_out_for_a_while_after_many_wrong_passwords(settings: Settings) -> None:
    User.objects.create_superuser("root", password="right")
    statuses = [log_in("wrong") for _ in range(settings.AXES_FAILURE_LIMIT)]
    assert statuses == [200] * (settings.AXES_FAILURE_LIMIT - 1) + [429]
    assert log_in("right") == 429  # also for the right password
    assert log_in("right", "192.0.2.2") == 302  # another address is not locked out
    event = Event.objects.get(type="login_locked")
    assert (event.actor, event.payload) == ("address:192.0.2.1", {})
    AccessAttempt.objects.update(attempt_time=timezone.now() - settings.AXES_COOLOFF_TIME - timedelta(seconds=1))
    assert log_in("right") == 302


def test_row_36_the_client_address_is_the_one_that_the_proxy_saw(rf: RequestFactory, settings: Settings) -> None:
    request = rf.get("/", headers={"X-Forwarded-For": "203.0.113.9, 198.51.100.7"}, REMOTE_ADDR="10.0.0.1")
    assert client_address(request) == "10.0.0.1"
    settings.BEHIND_PROXY = True
    assert client_address(request) == "198.51.100.7"
    assert client_address(rf.get("/", REMOTE_ADDR="10.0.0.1")) == "10.0.0.1"


@pytest.mark.slow
def test_a_right_password_resets_the_count_of_wrong_ones(settings: Settings) -> None:
    User.objects.create_superuser("root", password="right")
    for _ in range(3):
        assert [log_in("wrong") for _ in range(settings.AXES_FAILURE_LIMIT - 1)][-1] == 200
        assert log_in("right") == 302


class TestHowLong:
    """A login expires, whether it is used or not."""

    @pytest.fixture
    def client(self) -> Client:
        return operator("view_session")

    def age(self, client: Client, **seconds: float) -> int:
        """Set the start or last use of the login that many seconds back; return the status of a page."""
        session = client.session
        for name, value in seconds.items():
            session[{"began": STARTED_AT, "seen": LAST_SEEN_AT}[name]] = time.time() - value
        session.save()
        return client.get("/admin/").status_code

    @pytest.mark.slow
    def test_row_36_an_idle_login_expires(self, client: Client, settings: Settings) -> None:
        before = time.time()
        assert self.age(client, seen=settings.LOGIN_IDLE_MINUTES * 60 - 600) == 200
        assert client.session[LAST_SEEN_AT] >= before  # the page counts as use
        assert self.age(client, seen=settings.LOGIN_IDLE_MINUTES * 60 + 1) == 302
        assert client.get("/admin/").status_code == 302

    def test_row_36_a_login_in_use_expires_too(self, client: Client, settings: Settings) -> None:
        assert self.age(client, began=settings.LOGIN_HOURS * 3600 - 600) == 200
        assert self.age(client, began=settings.LOGIN_HOURS * 3600 + 1) == 302

    def test_row_48_a_login_that_started_in_the_future_is_expired(self, client: Client) -> None:
        assert self.age(client, began=-60) == 302

    def test_a_page_writes_the_session_once_a_minute(self, client: Client) -> None:
        assert self.age(client, seen=-1000) == 200  # less than a minute has passed, however slow the machine is
        assert client.session[LAST_SEEN_AT] > time.time()

    def test_the_login_page_leads_back_to_the_requested_page(self, client: Client) -> None:
        session = client.session
        del session[STARTED_AT]
        session.save()
        answer = client.get("/admin/sessions_app/session/?q=ada")
        assert answer.headers["Location"] == "/admin/login/?next=/admin/sessions_app/session/%3Fq%3Dada"
