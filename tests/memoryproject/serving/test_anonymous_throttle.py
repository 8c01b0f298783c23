"""Unauthenticated calls: rate-limited by address at every entry point, without affecting other calls."""

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from pytest_django.fixtures import Settings

from memoryproject import asgi
from memoryproject.serving import anonymous_throttle
from memoryproject.serving.anonymous_throttle import (
    AnonymousThrottle,
    TokenBuckets,
    address_of,
    address_range,
    credential_of,
)
from sessions_app.models import ApiKey
from sessions_app.process_cache import VERIFIED
from tests.support.live import live_site

pytestmark = pytest.mark.django_db(transaction=True)

WRONG = "mem_000000000000_wrong"
MANY = 3  # unauthenticated calls that are allowed at once
DOORS = {
    "REST": ("GET", "/api/v1/sessions?user_id=ada"),
    "MCP": ("POST", "/mcp"),
    "chat": ("POST", "/v1/chat/completions"),
    "admin": ("GET", "/admin/sessions_app/session/"),
    "schema": ("GET", "/api/v1/schema"),
    "docs": ("GET", "/api/v1/docs"),
    "metrics": ("GET", "/metrics"),
}


@pytest.fixture
def site(transactional_db: None, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A site that received no calls yet. Its clock stands still, so no bucket is refilled."""
    settings.ANONYMOUS_RATE = 1
    monkeypatch.setattr(anonymous_throttle, "BURST_SECONDS", MANY)
    monkeypatch.setattr(anonymous_throttle, "time", SimpleNamespace(monotonic=lambda: 100.0))
    monkeypatch.setattr(asgi, "_anonymous_throttle", AnonymousThrottle())
    with live_site() as url:
        yield url


def call(site: str, door: str, key: str = "", **headers: str) -> Any:
    method, path = DOORS[door]
    named = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx2.request(method, f"{site}{path}", headers=named | headers, json={} if method == "POST" else None)


def statuses(site: str, times: int, door: str, key: str = "", **headers: str) -> list[int]:
    return [call(site, door, key, **headers).status_code for _ in range(times)]


@pytest.mark.slow
def test_row_36_calls_without_a_valid_key_are_limited_by_address_at_every_entry_point(
    site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for door in DOORS:
        for key in ("", WRONG):
            monkeypatch.setattr(asgi, "_anonymous_throttle", AnonymousThrottle())
            assert 429 not in statuses(site, MANY, door, key)
            refused = call(site, door, key)
            assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
            if door in ("REST", "MCP", "schema", "docs"):
                assert refused.json()["errors"][0]["code"] == "throttled"
            if door == "chat":
                assert refused.json()["error"]["code"] == "rate_limited"
            if door == "admin":
                assert "<h1>Not available right now</h1>" in refused.text
    assert httpx2.get(f"{site}/healthz").status_code == 200
    assert httpx2.get(f"{site}/readyz").status_code == 200
    assert httpx2.get(f"{site}/static/admin/css/base.css").status_code == 200


def test_row_36_a_valid_key_is_served_whatever_others_at_its_address_send(site: str) -> None:
    known, unused = (ApiKey.objects.issue(name)[1] for name in ("known", "unused"))
    assert statuses(site, MANY + 1, "REST", known) == [200] * (MANY + 1)
    assert statuses(site, MANY + 1, "REST", WRONG) == [401] * MANY + [429]
    assert statuses(site, 1, "REST") == [429]
    for key in (known, unused):
        assert statuses(site, MANY + 1, "REST", key) == [200] * (MANY + 1)


def test_row_36_a_revoked_key_is_limited_as_unauthenticated(site: str) -> None:
    key, text = ApiKey.objects.issue("revoked")
    assert statuses(site, 1, "REST", text) == [200]
    key.revoke()
    assert statuses(site, MANY + 2, "REST", text) == [401] * (MANY + 1) + [429]
    assert text not in VERIFIED


def test_row_36_guesses_of_a_secret_are_limited_and_do_not_block_the_key(site: str) -> None:
    key, text = ApiKey.objects.issue("attacked")
    assert statuses(site, 1, "REST", text) == [200]
    guesses = [call(site, "REST", f"mem_{key.prefix}_{number}").status_code for number in range(2 * MANY + 1)]
    assert guesses == [401] * 2 * MANY + [429]
    assert statuses(site, 1, "REST", text) == [200]


def test_row_36_a_logged_in_operator_is_served_while_others_at_the_address_are_limited(site: str) -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    cookie = f"sessionid={client.cookies['sessionid'].value}"
    assert statuses(site, 1, "admin", Cookie=cookie) == [200]
    assert statuses(site, MANY + 1, "admin", Cookie="sessionid=made-up") == [302] * MANY + [429]
    assert statuses(site, 1, "admin", Cookie=cookie) == [200]
    client.logout()
    assert statuses(site, 1, "admin", Cookie=cookie) == [302]
    assert statuses(site, 1, "admin", Cookie=cookie) == [429]


def test_a_first_call_with_a_valid_key_is_not_counted(site: str) -> None:
    for number in range(MANY + 1):
        assert statuses(site, 1, "REST", ApiKey.objects.issue(f"{number}")[1]) == [200]
    assert statuses(site, 1, "REST") == [401]


def test_addresses_of_one_subscriber_are_counted_together(settings: Settings) -> None:
    assert address_range("192.0.2.7") == "192.0.2.7"
    assert address_range("::ffff:192.0.2.7") == "192.0.2.7"
    assert address_range("2001:db8:1:2:3::4") == address_range("2001:db8:1:2:ffff::9") == "2001:db8:1:2::/64"
    assert address_range("2001:db8:1:3::4") != address_range("2001:db8:1:2::4")
    assert address_range("") == ""
    forwarded = [(b"x-forwarded-for", b"203.0.113.9, 198.51.100.7")]
    scope: dict[str, Any] = {"client": ("10.0.0.1", 7), "headers": forwarded}
    assert address_of(scope) == "10.0.0.1"
    settings.BEHIND_PROXY = True
    assert address_of(scope) == "198.51.100.7"
    assert address_of({"client": None, "headers": []}) == ""


@pytest.mark.parametrize(
    ("headers", "secret"),
    [
        ([], ""),
        ([(b"authorization", b"Bearer  key ")], "key"),
        ([(b"authorization", b"Basic key"), (b"cookie", b"sessionid=s")], ""),
        ([(b"cookie", b"a=b; sessionid=s")], "s"),
        ([(b"cookie", b"\xff=;;;=\x00")], ""),
    ],
)
def test_a_caller_is_identified_by_key_or_login(headers: list[tuple[bytes, bytes]], secret: str) -> None:
    assert credential_of({"headers": headers}) == secret


def test_buckets_are_refilled_and_their_number_is_limited(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.ANONYMOUS_RATE = 2
    clock = SimpleNamespace(now=100.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(anonymous_throttle, "time", clock)
    monkeypatch.setattr(anonymous_throttle, "MAX_BUCKETS", 3)
    buckets = TokenBuckets()
    assert [buckets.acquire("a") for _ in range(21)] == [0.0] * 20 + [0.5]
    clock.now += 0.5
    assert (buckets.acquire("a"), buckets.acquire("a")) == (0.0, 0.5)
    buckets.refund("a")
    assert buckets.acquire("a") == 0.0
    for name in "bcd":
        buckets.acquire(name)
    assert buckets.acquire("a") == 0.0  # forgotten, so it is full again


def test_no_prefix_is_known_without_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    _, text = ApiKey.objects.issue("issued")
    prefix = text.split("_")[1]
    assert asyncio.run(anonymous_throttle.KeyPrefixes().has(prefix))
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE sessions_app_apikey RENAME TO hidden")
    try:
        assert not asyncio.run(anonymous_throttle.KeyPrefixes().has(prefix))
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE hidden RENAME TO sessions_app_apikey")
