"""Row 45: each kind of token at each entry point of a served site."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from django.db import connection
from pytest_django import DjangoDbBlocker
from pytest_django.fixtures import Settings

from memory_extras.oauth.models import Assistant
from sessions_app.models import UserProfile
from tests.support.oauth import BACK, VERIFIER, asked, back_from, let_ask
from tests.support.operator import operator
from tests.support.processes import environment, free_port, web_at

pytestmark = [pytest.mark.slow(seconds=15), pytest.mark.django_db(transaction=True)]

CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
FACT = {"name": "append_memory", "arguments": {"content": "Ada restores kilns.", "memory_type": "fact"}}
TURN = {"messages": [{"role": "user", "content": "Hello"}]}
NOT_VALID, NOT_IN_SCOPE = 401, 403


@pytest.fixture(scope="module")
def site(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """A web server with OAuth enabled."""
    with django_db_blocker.unblock():
        port = free_port()
        variables = environment(ALLOWED_HOSTS="127.0.0.1", OAUTH__SITE=f"http://127.0.0.1:{port}")
        connection.close()
    with web_at(port, variables) as url:
        yield url


def token_of(site: str, audience: str, scope: str) -> str:
    """Return an access token that an operator granted."""
    assistant = Assistant.objects.register("Claude", [BACK])
    query = asked(assistant, resource=f"{site}{audience}", scope=scope)
    form = {"user_id": "ada", "scope": scope.split(), "days": 30, "allow": ""}
    code = back_from(operator().post("/admin/sessions_app/apikey/authorize/", form, query_params=query))["code"]
    whole = {"grant_type": "authorization_code", "code": code, "redirect_uri": BACK, "code_verifier": VERIFIER}
    answer = httpx2.post(f"{site}/token", data=whole | {"client_id": assistant.client_id})
    return str(answer.json()["access_token"])


def answers(site: str, token: str) -> dict[str, Any]:
    """Return the status of each entry point. For the writing MCP tool, return whether it wrote."""
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}

    def get(path: str) -> int:
        return httpx2.get(f"{site}{path}", headers=headers).status_code

    def post(path: str, body: dict[str, Any], **more: str) -> httpx2.Response:
        return httpx2.post(f"{site}{path}", headers=headers | more, json=body)

    def call(method: str, params: dict[str, Any]) -> httpx2.Response:
        return post("/mcp", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params})

    written = call("tools/call", FACT)
    has_written = '"isError":false' in written.text.replace(" ", "")
    return {
        "MCP reads": call("initialize", CLIENT).status_code,
        "MCP writes": has_written if written.status_code == 200 else written.status_code,
        "REST reads": get("/api/v1/facts"),
        "REST writes": post("/api/v1/sessions/s/messages", TURN).status_code,
        "REST erases": httpx2.delete(f"{site}/api/v1/users/ada", headers=headers).status_code,
        "export": get("/api/v1/users/ada/export"),
        "chat": post("/v1/chat/completions", {"model": "m"} | TURN, **{"X-Session-Id": "s"}).status_code,
    }


AT_MCP: dict[str, Any] = dict.fromkeys(["REST reads", "REST writes", "REST erases", "export", "chat"], NOT_VALID)
AT_REST: dict[str, Any] = dict.fromkeys(["MCP reads", "MCP writes", "chat"], NOT_VALID) | {"REST erases": NOT_IN_SCOPE}
AT_CHAT: dict[str, Any] = dict.fromkeys([*AT_MCP, "MCP reads", "MCP writes"], NOT_VALID)
NOT_CONFIGURED = 503  # the chat endpoint has no upstream here


@pytest.mark.parametrize(
    ("audience", "scope", "expected"),
    [
        ("/mcp", "read", AT_MCP | {"MCP reads": 200, "MCP writes": False}),
        ("/mcp", "read write", AT_MCP | {"MCP reads": 200, "MCP writes": True}),
        ("/api/v1", "read", AT_REST | {"REST reads": 200, "REST writes": NOT_IN_SCOPE, "export": NOT_IN_SCOPE}),
        ("/api/v1", "read write", AT_REST | {"REST reads": 200, "REST writes": 201, "export": NOT_IN_SCOPE}),
        ("/api/v1", "export", AT_REST | {"REST reads": NOT_IN_SCOPE, "REST writes": NOT_IN_SCOPE, "export": 200}),
        ("/v1", "chat", AT_CHAT | {"chat": NOT_CONFIGURED}),
    ],
)
def test_row_45_a_token_is_valid_only_for_its_audience_and_scopes(
    site: str, settings: Settings, ada: UserProfile, audience: str, scope: str, expected: dict[str, Any]
) -> None:
    let_ask(settings, site)
    assert answers(site, token_of(site, audience, scope)) == expected
