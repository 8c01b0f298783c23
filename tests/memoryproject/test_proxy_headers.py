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

Serve = Callable[..., AbstractContextManager[str]]


@contextmanager
def gunicorn(**variables: str) -> Iterator[str]:
    """Serve as in production."""
    with web(**environment(**variables)) as url:
        yield url


@contextmanager
def manage_run(**variables: str) -> Iterator[str]:
    """Serve by `manage.py run`."""
    with migrated_folder() as folder, pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        run = Run(folder, "--no-demo")
        try:
            run.serve()
            yield f"http://127.0.0.1:{run.port}"
        finally:
            run.stop()


both_servers = pytest.mark.parametrize("serve", [gunicorn, manage_run], ids=["gunicorn", "manage.py run"])


def call(site: str, entry: str, **headers: str) -> int:
    """Call an entry point without a key; return the status."""
    method, path = ENTRY_POINTS[entry]
    body: dict[str, str] | None = {} if method == "POST" else None
    return httpx2.request(method, f"{site}{path}", headers=named(headers), json=body).status_code


def named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def over_forged_https(site: str) -> dict[str, int]:
    """Call each entry point with a header that claims HTTPS; return the statuses."""
    return {entry: call(site, entry, X_Forwarded_Proto="https") for entry in ENTRY_POINTS}


def forged() -> Iterator[str]:
    """Yield a new address each time."""
    return (f"203.0.113.{number}" for number in count(1))


def is_throttled(site: str, entry: str, addresses: Iterator[str], **headers: str) -> bool:
    """Call from a new address each time; return whether a call is rate-limited."""
    return any(call(site, entry, X_Forwarded_For=next(addresses), **headers) == 429 for _ in range(MOST))


@both_servers
def test_row_44_a_forged_scheme_does_not_evade_https(serve: Serve) -> None:
    with serve(HTTPS="true", FORWARDED_ALLOW_IPS="*") as site:  # so that gunicorn itself would believe it
        assert over_forged_https(site) == NOT_OVER_HTTPS


@both_servers
def test_row_44_forged_addresses_do_not_evade_the_lockout_or_the_anonymous_rate_limit(serve: Serve) -> None:
    addresses = forged()
    with serve(ANONYMOUS_RATE="2") as site, httpx2.Client(base_url=site) as client:
        client.get("/admin/login/")
        given = {"username": "root", "password": "wrong", "csrfmiddlewaretoken": client.cookies["csrftoken"]}
        statuses = [
            client.post("/admin/login/", data=given, headers={"X-Forwarded-For": next(addresses)}).status_code
            for _ in range(FAILURES + 1)  # fewer than a burst of anonymous calls
        ]
        assert {entry: is_throttled(site, entry, addresses) for entry in ENTRY_POINTS} == dict.fromkeys(
            ENTRY_POINTS, True
        )
    assert statuses == [200] * (FAILURES - 1) + [429] * 2


def test_row_44_a_declared_proxy_sets_the_scheme_and_the_client_address() -> None:
    with gunicorn(HTTPS="true", BEHIND_PROXY="true", ANONYMOUS_RATE="1") as site:
        assert over_forged_https(site) == OVER_HTTPS
        assert httpx2.get(f"{site}/api/v1/sessions", headers={"X_Forwarded_Proto": "https"}).status_code == 301
        for number, entry in enumerate(ENTRY_POINTS):
            one, other = f"198.51.100.{2 * number}", f"198.51.100.{2 * number + 1}"
            from_one = (f"{address}, {one}" for address in forged())
            assert is_throttled(site, entry, from_one, X_Forwarded_Proto="https"), entry
            sent = {"X_Forwarded_For": f"{one}, {other}", "X_Forwarded_Proto": "https"}
            assert call(site, entry, **sent) == OVER_HTTPS[entry]
