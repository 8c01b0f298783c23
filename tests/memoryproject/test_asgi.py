"""The running web process: what it serves, and what it refuses."""

import asyncio
import json
import socket
import time
import urllib.request

import pytest
from starlette.types import Message

from memoryproject import asgi
from memoryproject.serving.fair_shares import Refused
from sessions_app.models import ApiKey, DailyUsage
from tests.support.http import status_of
from tests.support.processes import environment, web

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.slow
def test_the_web_process_serves_every_kind_of_url_and_when_stopped_writes_usage_despite_idle_connections() -> None:
    with web(**environment()) as url:
        assert status_of(f"{url}/admin/login/") == 200
        assert status_of(f"{url}/static/admin/css/base.css") == 200
        assert status_of(f"{url}/api/v1/sessions") == 401
        assert status_of(f"{url}/v1/nothing") == 404
        key = {"Authorization": f"Bearer {ApiKey.objects.issue('test')[1]}"}
        assert status_of(f"{url}/api/v1/sessions?user_id=ada", **key) == 200
        with urllib.request.urlopen(urllib.request.Request(f"{url}/metrics", headers=key)) as answer:
            assert b'memory_http_request_seconds_count{door="rest",status="401"} 1.0' in answer.read()
        idle = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(100).startswith(b"HTTP/1.1 200")
        began = time.monotonic()
    assert time.monotonic() - began < 20
    idle.close()
    assert [usage.requests for usage in DailyUsage.objects.filter(application__isnull=False)] == [1]


def refused_at(path: str, refused: Refused) -> tuple[Message, str]:
    """Return the response start and body of a request that is refused at this path."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    asyncio.run(asgi._refuse({"type": "http", "path": path}, receive, send, refused))
    return sent[0], sent[1]["body"].decode()


@pytest.mark.parametrize(("status", "header"), [(503, (b"retry-after", b"1")), (413, (b"connection", b"close"))])
def test_a_refusal_has_the_error_shape_of_the_api_at_its_path(status: int, header: tuple[bytes, bytes]) -> None:
    refused = Refused(status, "some_code", "Some words.")
    for path in ("/api/v1/sessions", "/mcp"):
        start, body = refused_at(path, refused)
        assert json.loads(body)["errors"] == [{"code": "some_code", "detail": "Some words.", "attr": None}]
        assert start["status"] == status
        assert header in start["headers"]
    start, body = refused_at("/v1/chat/completions", refused)
    kind = "api_error" if status == 503 else "invalid_request_error"
    assert json.loads(body) == {"error": {"message": "Some words.", "type": kind, "code": "some_code"}}
    assert start["status"] == status
    assert header in start["headers"]


def test_a_refused_browser_gets_a_page() -> None:
    start, body = refused_at("/admin/", Refused(503, "busy", "Some words."))
    assert (start["status"], (b"retry-after", b"1") in start["headers"]) == (503, True)
    assert "<h1>Not available right now</h1>" in body
    assert "Some words." in body
