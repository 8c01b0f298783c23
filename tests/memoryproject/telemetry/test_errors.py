"""Error reports contain no user text, no matter what the library collects."""

import gzip
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path
from opentelemetry.trace import SpanKind
from pytest_django.fixtures import Settings

from memoryproject import telemetry
from memoryproject.telemetry import errors
from sessions_app.trace import HEADER, continue_trace, request_id
from tests.support.receiver import Receiver
from tests.support.waiting import wait_until

SECRET = "zebra-finch"
REQUEST = "0af7651916cd43dd8448eb211c80319c"


def fails(request: HttpRequest, name: str) -> HttpResponse:
    """Raise an error that quotes the request body, as a database constraint does."""
    said = request.body.decode()
    raise ValueError(f"Key ({name}) = ({said}) exists.")


urlpatterns = [path("people/<str:name>", fails)]
handler500 = lambda request: HttpResponse(status=500)  # noqa: E731


@pytest.fixture
def reports() -> Iterator[Receiver]:
    """A receiver of this process's error reports."""
    with Receiver() as receiver:
        end = errors.start("web", receiver.url.replace("://", "://key@").replace("/hook", "/1"))
        yield receiver
        end()


def told(receiver: Receiver) -> list[dict[str, Any]]:
    """Return the reports as sent."""
    plain = [gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body for body in receiver.bodies]
    assert not any(SECRET.encode() in body for body in plain)
    return [json.loads(body.splitlines()[2]) for body in plain]


def test_a_report_has_type_frames_route_and_request_id_of_an_error_but_no_user_text(
    reports: Receiver, settings: Settings
) -> None:
    settings.ROOT_URLCONF, settings.MIDDLEWARE = __name__, []
    with continue_trace({HEADER: REQUEST}, "test", SpanKind.SERVER):
        assert request_id() == REQUEST
        Client(raise_request_exception=False).post(f"/people/{SECRET}?q={SECRET}", SECRET, content_type="text/plain")
    wait_until(lambda: bool(reports.bodies))
    [report] = told(reports)
    [error] = report["exception"]["values"]
    assert error["type"] == "ValueError" and "value" not in error
    assert error["stacktrace"]["frames"][-1]["function"] == "fails"
    assert report["transaction"] == "/people/{name}"
    assert report["tags"] == {"process": "web", "request_id": REQUEST}
    assert report["release"].startswith("memory-platform@")


def test_a_line_of_ours_is_reported_with_its_fields_and_a_line_of_a_library_by_its_place(reports: Receiver) -> None:
    structlog.get_logger("moments_app.test").error("job error", error="KeyError", where="some.py:7", said=SECRET)
    logging.getLogger("other").error("It was %s.", SECRET)
    wait_until(lambda: len(reports.bodies) == 2)
    ours, others = told(reports)
    assert ours["message"] == "job error"
    assert ours["extra"] == {"error": "KeyError", "where": "some.py:7"}
    assert others["message"].startswith("test_errors.test_a_line_of_ours")


def test_a_missing_package_is_reported_with_the_extra_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "memoryproject.telemetry.errors")
    monkeypatch.setitem(sys.modules, "sentry_sdk", None)
    with pytest.raises(ImproperlyConfigured, match=r"sentry_sdk isn't installed\. .*'\.\[sentry\]'"):
        telemetry._errors()
