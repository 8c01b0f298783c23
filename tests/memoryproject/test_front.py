"""One person, one socket, one lock never stops another: attacked from outside, with a prober beside."""

import json
import socket
import statistics
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import psycopg
import pytest

from sessions_app.models import ApiKey, Session, UserProfile
from tests.support.frozen import gate
from tests.support.processes import database_url, environment, web

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

WORST = 1.0  # seconds that the prober may wait
SOCKETS = 30


class Prober:
    """Asks for something now and then, and keeps how long each answer took and what it was."""

    def __init__(self, url: str, key: str) -> None:
        self._request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"})
        self.seconds: list[float] = []
        self.statuses: set[int] = set()

    def ask(self, seconds: float) -> None:
        """Ask five times a second for so long."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            began = time.monotonic()
            self.statuses.add(status_of(self._request))
            self.seconds.append(time.monotonic() - began)
            time.sleep(0.2)


def status_of(request: urllib.request.Request | str) -> int:
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.fixture
def key() -> str:
    _key, text = ApiKey.objects.issue("prober", scope=ApiKey.Scope.WRITE)
    return text


@pytest.fixture
def prober_of() -> Callable[[str, str], Prober]:
    ada = UserProfile.objects.ensure("ada")
    Session.objects.create(user=ada, session_id="hers")
    return lambda url, key: Prober(f"{url}/api/v1/sessions/hers/messages?user_id=ada", key)


@contextmanager
def unfinished(url: str, head: str) -> Iterator[None]:
    """Hold sockets open on which a request was begun and not ended."""
    port = int(url.rpartition(":")[2])
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(SOCKETS)]
    for one in held:
        one.sendall(head.encode())
    try:
        yield
    finally:
        for one in held:
            one.close()


@pytest.mark.parametrize("path", ["/admin/login/", "/api/v1/search", "/v1/chat/completions", "/mcp"])
def test_row_29_unfinished_bodies_keep_nobody_waiting(
    path: str, key: str, prober_of: Callable[[str, str], Prober]
) -> None:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\nCookie: csrftoken={'a' * 32}\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\n\r\ncsrf"
    )
    with web(**environment()) as url, unfinished(url, head):
        prober = prober_of(url, key)
        prober.ask(3)
    assert max(prober.seconds[1:]) < WORST
    assert prober.statuses == {200}


def test_row_29_slow_readers_keep_nobody_waiting(key: str, prober_of: Callable[[str, str], Prober]) -> None:
    head = "GET /api/v1/schema HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with web(**environment()) as url:
        status_of(f"{url}/api/v1/schema")  # made once, by whoever asks first
        with unfinished(url, head):
            prober = prober_of(url, key)
            prober.ask(3)
    assert max(prober.seconds[1:]) < WORST
    assert prober.statuses == {200}


def test_a_burst_of_slow_requests_after_a_quiet_time_is_served(
    key: str, prober_of: Callable[[str, str], Prober]
) -> None:
    with web(**environment()) as url:
        prober = prober_of(url, key)
        prober.ask(0.3)
        time.sleep(4)
        clients = [threading.Thread(target=prober.ask, args=(0.01,)) for _ in range(60)]
        for client in clients:
            client.start()
        for client in clients:
            client.join(30)
    assert prober.statuses == {200}


def test_row_29_a_locked_session_stops_no_other(key: str, prober_of: Callable[[str, str], Prober]) -> None:
    bo = UserProfile.objects.ensure("bo")
    locked = Session.objects.create(user=bo, session_id="locked")
    body = json.dumps({"user_id": "bo", "messages": [{"role": "user", "content": "Hello."}]}).encode()
    with web(**environment()) as url, closing(psycopg.connect(database_url())) as other:
        other.execute("SELECT FROM sessions_app_session WHERE id = %s FOR UPDATE", [locked.pk])
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        append = urllib.request.Request(f"{url}/api/v1/sessions/locked/messages", body, headers)
        statuses: list[int] = []

        def keep_appending() -> None:
            with suppress(OSError):
                while not done.is_set():
                    statuses.append(status_of(append))

        done = threading.Event()
        clients = [threading.Thread(target=keep_appending) for _ in range(12)]
        for client in clients:
            client.start()
        prober = prober_of(url, key)
        prober.ask(6)
        done.set()
        other.rollback()
        for client in clients:
            client.join(30)
    assert max(prober.seconds[1:]) < WORST
    assert prober.statuses == {200}
    assert set(statuses) <= {201, 503}


def test_row_29_a_database_that_hangs_is_told_within_seconds_and_health_at_once(
    key: str, prober_of: Callable[[str, str], Prober]
) -> None:
    with gate() as (database, address), web(**environment(DATABASE_URL=address)) as url:
        prober = prober_of(url, key)
        prober.ask(0.5)
        assert prober.statuses == {200}
        database.freeze()
        stuck = [threading.Thread(target=prober.ask, args=(0.1,), daemon=True) for _ in range(12)]
        for one in stuck:
            one.start()
        time.sleep(4.5)
        health = Prober(f"{url}/healthz", key)
        late = Prober(prober._request.full_url, key)
        late.ask(3)
        health.ask(1)
        began = time.monotonic()
        assert status_of(f"{url}/readyz") == 503
        assert time.monotonic() - began < 5
        assert late.statuses == {503}
        assert statistics.median(late.seconds) < WORST
        assert max(health.seconds) < WORST
        assert health.statuses == {200}
        database.thaw()
        time.sleep(1)
        again = Prober(prober._request.full_url, key)
        again.ask(1)
        assert 200 in again.statuses
