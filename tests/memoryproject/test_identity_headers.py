"""A request is refused if it sends an identity header or parameter twice, or if an id is not UTF-8."""

from collections.abc import Iterator

import httpx2
import pytest

from memoryproject.serving.request_limits import IDENTITY_HEADERS, IDENTITY_PARAMETERS
from sessions_app.models import ApiKey, Session, UserProfile
from tests.support.live import live_site

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

ENTRY_POINTS = {
    "REST": ("GET", "/api/v1/sessions?user_id=ada"),
    "MCP": ("POST", "/mcp"),
    "chat": ("POST", "/v1/chat/completions"),
}
SAID = {"model": "m", "messages": [{"role": "user", "content": "Hello."}]}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@pytest.fixture
def site(transactional_db: None) -> Iterator[str]:
    with live_site() as url:
        yield url


def sent(key: str) -> list[tuple[str, str]]:
    """Return the headers of a valid call."""
    named = {"X-User-Id": "ada", "X-Session-Id": "s1", "X-Agent-Id": "coach"}
    accepted = {"Accept": "application/json, text/event-stream"}
    return list(({"Authorization": f"Bearer {key}"} | named | accepted).items())


def call(site: str, entry: str, headers: list[tuple[str, str]], query: str = "") -> httpx2.Response:
    method, path = ENTRY_POINTS[entry]
    path = f"{path.partition('?')[0]}?{query}" if query else path
    body = {"MCP": LIST, "chat": SAID}.get(entry)
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    return httpx2.request(method, f"{site}{path}", headers=encoded, json=body)


@pytest.mark.parametrize("entry", ENTRY_POINTS)
def test_a_repeated_identity_header_is_rejected_by_name(site: str, entry: str) -> None:
    key = ApiKey.objects.issue("application")[1]
    for name in IDENTITY_HEADERS:
        for other in ("bo", dict(sent(key))[name]):  # another value, or the same value again
            answer = call(site, entry, [*sent(key), (name.lower(), other)])
            told = answer.json()["error"] if entry == "chat" else answer.json()["errors"][0]
            assert (answer.status_code, told["code"]) == (400, "ambiguous_header")
            assert name in told.get("message", told.get("detail"))
    assert not UserProfile.objects.exists() and not Session.objects.exists()


@pytest.mark.parametrize("entry", ENTRY_POINTS)
@pytest.mark.parametrize("twice", ["{0}=ada&{0}=bo", "{0}=ada&{0}=ada", "{0}=&{0}=bo", "{0}=a&x=1&{0}=", "{0}=a&{1}=b"])
def test_a_repeated_identity_parameter_is_rejected_by_name(site: str, entry: str, twice: str) -> None:
    key = ApiKey.objects.issue("application")[1]
    for name in IDENTITY_PARAMETERS:
        encoded = f"%{ord(name[0]):x}{name[1:]}"
        answer = call(site, entry, sent(key), twice.format(name, encoded))
        told = answer.json()["error"] if entry == "chat" else answer.json()["errors"][0]
        assert (answer.status_code, told["code"]) == (400, "ambiguous_parameter")
        assert name in told.get("message", told.get("detail"))
    assert not UserProfile.objects.exists() and not Session.objects.exists()


def test_a_person_named_by_different_parameters_is_served(site: str) -> None:
    key = ApiKey.objects.issue("application")[1]
    assert call(site, "REST", sent(key), "user_id=ada&limit=5&offset=0").status_code == 200


@pytest.mark.parametrize("path", ["users/Jos%e9", "sessions/caf%e9/messages?user_id=ada", "facts?user_id=Jos%E9"])
def test_row_9_a_url_that_is_not_in_utf_8_is_rejected(site: str, path: str) -> None:
    """Ids with different invalid bytes would become the same id."""
    key = ApiKey.objects.issue("application")[1]
    answer = httpx2.get(f"{site}/api/v1/{path}", headers=sent(key))
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (400, "not_utf8")
    assert call(site, "REST", sent(key), "user_id=Jos%C3%A9").status_code == 200


@pytest.mark.parametrize("entry", ["MCP", "chat"])
def test_row_9_the_error_for_an_id_that_is_not_utf_8_names_its_header(site: str, entry: str) -> None:
    key = ApiKey.objects.issue("application")[1]
    for name in ("X-User-Id", "X-Agent-Id"):
        answer = call(site, entry, list((dict(sent(key)) | {name: "Jos\xe9"}).items()))
        assert answer.status_code == 400 and name in answer.text
    assert not UserProfile.objects.exists()
