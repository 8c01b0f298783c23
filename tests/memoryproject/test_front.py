"""One person, one socket, one lock never stops another: attacked from outside, with a prober beside."""

import asyncio
import json
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from django.db import connection
from pytest_django import DjangoDbBlocker

from memoryproject.database.probe import Pulse
from memoryproject.serving import front
from memoryproject.serving.fair_shares import NOBODY
from memoryproject.serving.front import Threads, person_of
from sessions_app.models import ApiKey, Message, Session, UserProfile
from tests.support.frozen import gate
from tests.support.http import status_of
from tests.support.locks import row_locked
from tests.support.processes import environment, web
from tests.support.waiting import TIMEOUT, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow(seconds=15)]

WORST = 8.0  # seconds for an answer on a busy machine: who waits for what is stuck here waits longer
LOCK_SECONDS = 12
SOCKETS = 30
TIMES = 15


class Prober:
    """Asks for something, and keeps how long each answer took and what it was."""

    def __init__(self, url: str, key: str) -> None:
        self._request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"})
        self.seconds: list[float] = []
        self.statuses: set[int] = set()

    def ask(self, times: int = TIMES) -> None:
        """Ask so often, each time when the answer is there."""
        for _ in range(times):
            began = time.monotonic()
            self.statuses.add(status_of(self._request))
            self.seconds.append(time.monotonic() - began)

    def is_served(self) -> bool:
        """Ask once; tell whether it was answered."""
        return status_of(self._request) == 200


@pytest.fixture(scope="module")
def site(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """The base URL of a web process of its own, which has answered already."""
    with django_db_blocker.unblock():
        with_database = environment()
    with web(**with_database) as url:
        status_of(f"{url}/api/v1/schema")  # made once, by whoever asks first
        yield url


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
    path: str, site: str, key: str, prober_of: Callable[[str, str], Prober]
) -> None:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\nCookie: csrftoken={'a' * 32}\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\n\r\ncsrf"
    )
    prober = prober_of(site, key)
    with unfinished(site, head):
        prober.ask()
    assert max(prober.seconds) < WORST
    assert prober.statuses == {200}


@pytest.mark.parametrize("path", ["/api/v1/sessions/s1/messages", "/v1/chat/completions", "/mcp", "/admin/login/"])
def test_row_43_a_body_over_the_limit_is_refused_before_it_is_sent(path: str, site: str, key: str) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nContent-Length: 99999999\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(site.rpartition(":")[2])), timeout=TIMEOUT) as client:
        client.sendall(head.encode())
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"The body has 99999999 bytes; the limit is 16777216." in answer


def test_row_43_megabytes_of_messages_are_appended_and_health_is_answered_meanwhile(site: str, key: str) -> None:
    texts = ["The kiln is hot, and cools down until noon. " * 680, "窑炉今天早上是冷的，中午再打开。" * 600]
    said = [{"role": "user", "content": f"{n} {texts[n % 2]}"} for n in range(500)]
    body = json.dumps({"user_id": "ada", "messages": said}, ensure_ascii=False).encode()
    assert 14_000_000 < len(body) < 16_777_216
    prober, statuses = Prober(f"{site}/healthz", key), []
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    asked = urllib.request.Request(f"{site}/api/v1/sessions/s1/messages", body, headers)
    sender = threading.Thread(target=lambda: statuses.append(status_of(asked)))
    sender.start()
    while sender.is_alive():
        prober.ask(1)
    assert statuses == [201]
    assert Message.objects.count() == 500
    assert prober.statuses == {200}
    assert max(prober.seconds) < WORST


def test_row_29_slow_readers_keep_nobody_waiting(site: str, key: str, prober_of: Callable[[str, str], Prober]) -> None:
    head = "GET /api/v1/schema HTTP/1.1\r\nHost: localhost\r\n\r\n"
    prober = prober_of(site, key)
    with unfinished(site, head):
        prober.ask()
    assert max(prober.seconds) < WORST
    assert prober.statuses == {200}


def test_row_29_a_locked_session_stops_no_other_and_who_waits_for_it_is_told(
    key: str, prober_of: Callable[[str, str], Prober]
) -> None:
    bo = UserProfile.objects.ensure("bo")
    locked = Session.objects.create(user=bo, session_id="locked")
    Session.objects.create(user=bo, session_id="free")
    body = json.dumps({"user_id": "bo", "messages": [{"role": "user", "content": "Hello."}]}).encode()
    with web(**environment(LIMITS__LOCK_SECONDS=str(LOCK_SECONDS))) as url, row_locked(locked) as other:
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
        same_person = Prober(f"{url}/api/v1/sessions/free/messages?user_id=bo", key)
        beside = threading.Thread(target=same_person.ask)
        beside.start()
        prober.ask()
        beside.join()
        wait_until(lambda: 503 in statuses)
        done.set()
        other.rollback()
        for client in clients:
            client.join(TIMEOUT)
    for one in (prober, same_person):
        assert max(one.seconds[1:]) < WORST  # the first has much to load
        assert one.statuses == {200}
    assert set(statuses) <= {201, 503}
    assert Message.objects.filter(session=locked).count() == statuses.count(201)


def test_row_29_a_database_that_hangs_is_told_soon_and_health_at_once(
    key: str, prober_of: Callable[[str, str], Prober]
) -> None:
    body = json.dumps({"user_id": "ada", "messages": [{"role": "user", "content": "Hello."}]}).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    with gate() as (database, address), web(**environment(DATABASE_URL=address)) as url:
        prober = prober_of(url, key)
        prober.ask(3)
        assert prober.statuses == {200}
        append = urllib.request.Request(f"{url}/api/v1/sessions/hers/messages", body, headers)
        appended: list[int] = []
        database.freeze()
        changing = threading.Thread(target=lambda: appended.append(status_of(append)))
        changing.start()
        assert database.holds.wait(TIMEOUT)
        reading = [Prober(prober._request.full_url, key) for _ in range(5)]
        reading.append(Prober(f"{url}/mcp", key))
        health = Prober(f"{url}/healthz", key)
        clients = [threading.Thread(target=one.ask) for one in (*reading, health)]
        for client in clients:
            client.start()
        for client in clients:
            client.join(TIMEOUT)
        for one in reading:
            assert one.statuses == {503}
            assert max(one.seconds) < WORST  # 0.7 s where the machine has nothing else to do
        assert max(health.seconds) < WORST
        assert health.statuses == {200}
        began = time.monotonic()
        assert status_of(f"{url}/readyz") == 503
        assert time.monotonic() - began < WORST
        assert appended == []  # what becomes of it is not known yet
        database.thaw()
        changing.join(TIMEOUT)
        assert appended == [201]
        wait_until(prober.is_served)
        again = Prober(prober._request.full_url, key)
        again.ask()
        assert again.statuses == {200}
        assert max(again.seconds) < WORST


def test_it_asks_the_database_by_one_connection_until_that_ends() -> None:
    asking = Pulse()

    def server_process() -> int:
        asking._ask()
        return asking._connection.info.backend_pid if asking._connection else 0

    first = server_process()
    assert first and server_process() == first
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, %s)", [first, 1_000 * TIMEOUT])
    assert server_process() == 0, "An error is an answer."
    assert server_process() not in (0, first)
    assert asking._connection
    asking._connection.close()


# --- who gets a thread ---


async def _takes(threads: Threads, session: str, person: str, held: asyncio.Event) -> None:
    async with threads.one(session, person, NOBODY):
        await held.wait()


async def _taken_by(person: str, sessions: list[str], *, of: int) -> int:
    """Return how many threads somebody's requests have that are about these sessions."""
    threads, held = Threads(of), asyncio.Event()
    free = threads._free._value
    tasks = [asyncio.create_task(_takes(threads, session, person, held)) for session in sessions]
    await asyncio.sleep(0.05)
    taken = free - threads._free._value
    held.set()
    await asyncio.gather(*tasks)
    assert not threads._shares
    return taken


@pytest.mark.parametrize(
    ("sessions", "of", "taken"),
    [
        (["s"] * 9, 4, 2),
        ([f"s{number}" for number in range(9)], 4, 3),
        ([""] * 9, 8, 6),
        ([*["s"] * 9, "other"], 4, 3),  # who waits for a session keeps no place of the person's
        (["s"], 1, 1),
    ],
)
def test_a_session_gets_half_of_the_threads_and_a_person_three_quarters(
    sessions: list[str], of: int, taken: int
) -> None:
    assert asyncio.run(_taken_by("ada", sessions, of=of)) == taken


async def _burst_after_a_quiet_time(threads: Threads) -> None:
    async def slow() -> None:
        async with threads.one("", "", NOBODY):
            await asyncio.sleep(0.2)

    threads._moved_at -= 2 * front.STALLED_SECONDS
    await asyncio.gather(*(slow() for _ in range(6)))


def test_a_burst_of_slow_requests_after_a_quiet_time_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "STALLED_WAIT", 0.05)
    asyncio.run(_burst_after_a_quiet_time(Threads(2)))


def test_nobody_is_limited_by_requests_of_whom_nothing_is_known() -> None:
    assert asyncio.run(_taken_by("", [""] * 4, of=4)) == 4


def test_the_person_is_told_by_their_own_key_by_the_path_or_by_the_query() -> None:
    ada = UserProfile.objects.ensure("ada")
    own = f"Bearer {ApiKey.objects.issue('own', user=ada)[1]}".encode()
    service = f"Bearer {ApiKey.objects.issue('service')[1]}".encode()
    path = "/api/v1/users/ada/export"
    assert person_of(path, b"", service) == "user ada"
    assert person_of("/api/v1/moments", b"limit=1&user_id=ada", service) == "user ada"
    assert person_of("/api/v1/moments", b"", service) == person_of("/admin/", b"user_id=", b"") == ""
    hers = person_of("/api/v1/moments", b"", own)
    assert hers.startswith("key u")
    assert person_of("/api/v1/users/bo", b"user_id=bo", own) == hers
