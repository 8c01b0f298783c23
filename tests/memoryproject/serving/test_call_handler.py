"""Calls by key pass through less middleware than pages, and get the same responses."""

from typing import Any

import pytest
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.test import RequestFactory

from memoryproject.serving.call_handler import CallHandler, Handlers
from tests.support.api import Api

HOST, BODY = {"HTTP_HOST": "localhost"}, '{"user_id": "ada", "messages": [{"role": "user", "content": "Hello."}]}'
# Decide for each new middleware: calls by key pass through these, and through none of `MIDDLEWARE_OF_PAGES`.
OF_EVERY_REQUEST = (
    "django.middleware.security.SecurityMiddleware",
    "memoryproject.serving.middleware.ContentPolicyMiddleware",
    "memoryproject.serving.middleware.BodyLimitMiddleware",
    "memoryproject.serving.middleware.LimitsMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
)
Answer = tuple[str, dict[str, str], bytes]


def answer(handler: Any, method: str, path: str, **more: Any) -> Answer:
    told: dict[str, Any] = {}

    def start(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> None:
        told.update(status=status, headers=dict(headers))

    request = RequestFactory().generic(method, path, **(HOST | more))
    body = b"".join(handler(request.environ, start))
    return told["status"], told["headers"], body


@pytest.mark.django_db(transaction=True)
def test_both_handlers_respond_to_a_call_in_the_same_way(service: Api) -> None:
    key = {"HTTP_AUTHORIZATION": service.headers["Authorization"], "content_type": "application/json"}
    for handler in (CallHandler(), WSGIHandler()):
        stored = answer(handler, "POST", "/api/v1/sessions/s1/messages", data=BODY, **key)
        assert stored[0] == "201 Created", stored
    calls: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", "/api/v1/sessions/s1?user_id=ada", key),
        ("GET", "/api/v1/sessions/s1?user_id=ada", {"HTTP_AUTHORIZATION": "Bearer wrong"}),
        ("GET", "/api/v1/sessions/s2?user_id=ada", key),
        ("GET", "/api/v1/nothing", key),
        ("PUT", "/api/v1/sessions/s1", key),
        ("POST", "/api/v1/sessions/s1/messages", {"data": "{", **key}),
        ("GET", "/api/v1/sessions/s1?user_id=ada", key | {"HTTP_HOST": "elsewhere.example"}),
    ]
    for method, path, more in calls:
        by_calls, by_pages = (answer(handler(), method, path, **more) for handler in (CallHandler, WSGIHandler))
        assert by_calls == by_pages, path
    docs = [answer(handler(), "GET", "/api/v1/docs", **key) for handler in (CallHandler, WSGIHandler)]
    assert docs[0][0] == docs[1][0] == "200 OK" and docs[0][1].keys() == docs[1][1].keys()


def test_each_middleware_is_declared_for_pages_or_for_every_request() -> None:
    assert {*settings.MIDDLEWARE_OF_PAGES} | {*OF_EVERY_REQUEST} == {*settings.MIDDLEWARE}
    assert not {*settings.MIDDLEWARE_OF_PAGES} & {*OF_EVERY_REQUEST}


@pytest.mark.slow
@pytest.mark.django_db
def test_only_calls_by_key_skip_the_middleware_of_pages() -> None:
    handlers = Handlers()
    status, headers, _ = answer(handlers, "GET", "/admin/login/")
    assert status == "200 OK" and "csrftoken" in headers["Set-Cookie"]
    assert answer(handlers, "GET", "/api/v1/sessions")[0] == "401 Unauthorized"
    assert settings.MIDDLEWARE[0] == "django.middleware.security.SecurityMiddleware" and len(settings.MIDDLEWARE) > 15
