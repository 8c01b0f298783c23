"""Log lines about requests contain no ids of people."""

import logging
import re
from io import StringIO

import pytest
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.utils.log import log_response

from memoryproject.serving.request_log import UNKNOWN, RoutesOnly
from sessions_app.models import UserProfile
from tests.support.api import Api
from tests.support.operator import operator

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> StringIO:
    """The log output of the process."""
    written = StringIO()
    handlers = [one for one in logging.getLogger().handlers if any(isinstance(it, RoutesOnly) for it in one.filters)]
    assert len(handlers) == 1
    monkeypatch.setattr(handlers[0], "stream", written)
    return written


def test_a_refused_request_is_logged_by_its_route(service: Api, ada: UserProfile, log: StringIO) -> None:
    for name in ("ada-lovelace", "ada-é", "ada%0A", "ada%5C", "ada-" + "x" * 300, "ada-" + "é" * 300):
        service.get(f"users/{name}")
    service.patch("users/ada-lovelace", surprise=1)
    service.get("sessions/the-visit-of-ada-lovelace/messages", user_id="ada-lovelace", view="ada-lovelace")
    service.client.put("/api/v1/users/ada-lovelace", headers=service.headers)
    service.client.get("/api/v1/people/ada-lovelace")
    said = log.getvalue()
    assert not re.search(r"\bada\b", said)  # an id may contain the letters
    for line in (
        "Not Found: /api/v1/users/<public_id:user_id>",
        "Bad Request: /api/v1/users/<public_id:user_id>",
        "Bad Request: /api/v1/sessions/<public_id:session_id>/messages",
        "Method Not Allowed: /api/v1/users/<public_id:user_id>",
        f"Not Found: {UNKNOWN}",
    ):
        assert line in said


def test_a_refused_page_is_logged_in_one_line_with_the_operator(ada: UserProfile, log: StringIO) -> None:
    viewer = operator("view_session")
    before = log.tell()
    assert viewer.get(f"/admin/sessions_app/userprofile/{ada.pk}/change/").status_code == 403
    [line] = log.getvalue()[before:].splitlines()
    refused = "Forbidden (Permission denied): /admin/sessions_app/userprofile/<path:object_id>/change/"
    assert f"{refused} to operator:view_session" in line and "Traceback" not in line


def test_requests_that_fail_or_are_refused_before_a_view_are_logged_by_route(log: StringIO) -> None:
    Client().post("/api/v1/users/ada", b"x", content_type="text/plain", headers={"Transfer-Encoding": "chunked"})
    request = RequestFactory().get("/api/v1/users/ada?view=ada")
    log_response(
        "%s: %s",
        "Internal Server Error",
        request.path,
        response=HttpResponse(status=500),
        request=request,
        exception=OSError(),
    )
    said = log.getvalue()
    assert "Length Required: /api/v1/users/<public_id:user_id>" in said
    assert "Internal Server Error: /api/v1/users/<public_id:user_id>" in said
    assert not re.search(r"\bada\b", said)  # an id may contain the letters
