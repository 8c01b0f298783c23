"""Headers that only a declared proxy may set, forged by a client at each entry point of a served site."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count

import httpx2
import pytest

from tests.support.folders import migrated_folder
from tests.support.processes import environment, web
from tests.support.running import Run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow(seconds=15)]

ENTRY_POINTS = {
    "REST": ("GET", "/api/v1/sessions?user_id=ada"),
    "MCP": ("POST", "/mcp"),
    "chat": ("POST", "/v1/chat/completions"),
    "admin": ("GET", "/admin/"),
}
NOT_OVER_HTTPS = {"REST": 301, "MCP": 403, "chat": 403, "admin": 301}
OVER_HTTPS = {"REST": 401, "MCP": 401, "chat": 401, "admin": 302}
FAILURES = 10  # wrong passwords before a lockout
MOST = 60  # calls, far more than the anonymous rate limit allows for sequential calls

Serve = Callable[..., AbstractContextManager[httpx2.Client]]


@contextmanager
def gunicorn(**variables: str) -> Iterator[httpx2.Client]:
    """Serve as in production. Yield a client of the site."""
    with web(**environment(**variables)) as url, httpx2.Client(base_url=url) as client:
        yield client


@contextmanager
def manage_run(**variables: str) -> Iterator[httpx2.Client]:
    """Serve by `manage.py run`, which starts the same web server. Yield a client of the site."""
    with migrated_folder() as folder, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        run = Run(folder, "--no-demo")
        try:
            run.serve()
            with httpx2.Client(base_url=f"http://127.0.0.1:{run.port}") as client:
                yield client
        finally:
            run.stop()


def call(client: httpx2.Client, entry: str, **headers: str) -> int:
    """Call an entry point without a key; return the status."""
    method, path = ENTRY_POINTS[entry]
    body: dict[str, str] | None = {} if method == "POST" else None
    return client.request(method, path, headers=named(headers), json=body).status_code


def named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def over_forged_https(client: httpx2.Client) -> dict[str, int]:
    """Call each entry point with a header that claims HTTPS; return the statuses."""
    return {entry: call(client, entry, X_Forwarded_Proto="https") for entry in ENTRY_POINTS}


def forged() -> Iterator[str]:
    """Yield a new address each time."""
    return (f"203.0.113.{number}" for number in count(1))


def is_throttled(client: httpx2.Client, entry: str, addresses: Iterator[str], **headers: str) -> bool:
    """Call from a new address each time; return whether a call is rate-limited."""
    return any(call(client, entry, X_Forwarded_For=next(addresses), **headers) == 429 for _ in range(MOST))


@pytest.mark.parametrize("serve", [gunicorn, manage_run], ids=["gunicorn", "manage.py run"])
def test_row_44_a_forged_scheme_does_not_evade_https(serve: Serve) -> None:
    with serve(HTTPS="true", FORWARDED_ALLOW_IPS="*") as client:  # so that gunicorn itself would believe it
        assert over_forged_https(client) == NOT_OVER_HTTPS


def test_row_44_forged_addresses_do_not_evade_the_lockout_or_the_anonymous_rate_limit() -> None:
    addresses = forged()
    with gunicorn(ANONYMOUS_RATE="2") as client:
        client.get("/admin/login/")
        given = {"username": "root", "password": "wrong", "csrfmiddlewaretoken": client.cookies["csrftoken"]}
        statuses = [
            client.post("/admin/login/", data=given, headers={"X-Forwarded-For": next(addresses)}).status_code
            for _ in range(FAILURES + 1)  # fewer than a burst of anonymous calls
        ]
        client.cookies.clear()
        assert {entry: is_throttled(client, entry, addresses) for entry in ENTRY_POINTS} == dict.fromkeys(
            ENTRY_POINTS, True
        )
    assert statuses == [200] * (FAILURES - 1) + [429] * 2


def test_row_44_a_declared_proxy_sets_the_scheme_and_the_client_address() -> None:
    with gunicorn(HTTPS="true", BEHIND_PROXY="true", ANONYMOUS_RATE="1") as client:
        assert over_forged_https(client) == OVER_HTTPS
        assert client.get("/api/v1/sessions", headers={"X_Forwarded_Proto": "https"}).status_code == 301
        for number, entry in enumerate(ENTRY_POINTS):
            one, other = f"198.51.100.{2 * number}", f"198.51.100.{2 * number + 1}"
            from_one = (f"{address}, {one}" for address in forged())
            assert is_throttled(client, entry, from_one, X_Forwarded_Proto="https"), entry
            sent = {"X_Forwarded_For": f"{one}, {other}", "X_Forwarded_Proto": "https"}
            assert call(client, entry, **sent) == OVER_HTTPS[entry]
