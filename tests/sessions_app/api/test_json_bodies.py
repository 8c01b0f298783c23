"""JSON responses."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from django.test import RequestFactory
from django.utils.functional import lazystr
from rest_framework.exceptions import NotAcceptable
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import AdminRenderer, BaseRenderer, JSONRenderer
from rest_framework.request import Request

from sessions_app.api.json_bodies import QuickJSONRenderer, QuickNegotiation

ANSWERS = [
    {
        "time": datetime(2026, 1, 2, 3, 4, 5, 67_800, tzinfo=UTC),
        "at": datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=2))),
    },
    {"context_id": UUID("2517d888-d3c1-47f8-8b86-08e899e9792d"), "score": 0.1 + 0.2, "none": None, "number": 2**70},
    {"text": 'Ein "Öl"\u2028und\u2029 \x00\x1f\x7f </MemoryContext> 🏺', "said": lazystr("lazily")},
    [{"range": (1, 2)}, [], {}, True],
    None,
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_responses_are_byte_identical_to_those_of_drf(answer: Any) -> None:
    assert QuickJSONRenderer().render(answer) == JSONRenderer().render(answer)


def test_indentation_can_be_requested() -> None:
    assert QuickJSONRenderer().render({"a": 1}, "application/json; indent=2") == b'{\n  "a": 1\n}'


@pytest.mark.parametrize(
    "accept", [None, "*/*", "*/*, text/html", "application/json", "application/json; indent=2", "text/html", "image/*"]
)
def test_the_renderer_is_negotiated_as_by_drf(accept: str | None) -> None:
    headers = {} if accept is None else {"Accept": accept}
    request = Request(RequestFactory().get("/", headers=headers))
    renderers: list[BaseRenderer] = [QuickJSONRenderer(), AdminRenderer()]
    chosen: list[object] = []
    for negotiation in (QuickNegotiation(), DefaultContentNegotiation()):
        try:
            chosen.append(negotiation.select_renderer(request, renderers))
        except NotAcceptable:
            chosen.append(None)
    assert chosen[0] == chosen[1]
