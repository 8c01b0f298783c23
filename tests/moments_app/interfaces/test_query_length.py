"""The maximum length of a query at each entry point; `test_mcp.py` tests the tools."""

import json
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.urls import reverse

from moments_app.interfaces.chat.protocols import PROTOCOLS
from sessions_app.lexemes import QUERY_MAX_CHARS
from sessions_app.models import Session, UserProfile
from tests.support.api import Api
from tests.support.extras import needs
from tests.support.operator import operator
from tests.support.pages import list_url, page
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)

LONGEST = "kiln " * (QUERY_MAX_CHARS // 5)
TOO_LONG = LONGEST + "x"


def asked(service: Api, entry: str, query: str) -> Any:
    values = {"user_id": "ada", "query": query}
    if entry == "search":
        return service.post("memory/search", **values)
    ask = service.get if entry == "GET context" else service.post
    return ask("memory/context", session_id="s1", **values)


@pytest.mark.parametrize("entry", ["search", "GET context", "POST context"])
def test_row_43_a_query_over_4000_characters_is_400_with_field_and_limit(
    service: Api, ada: UserProfile, entry: str
) -> None:
    talk(ada, 3)
    assert asked(service, entry, LONGEST).status_code == 200
    refused = asked(service, entry, TOO_LONG)
    assert refused.status_code == 400
    [error] = refused.json()["errors"]
    assert (error["attr"], error["code"]) == ("query", "max_length")
    assert "4000" in error["detail"]


@pytest.mark.slow
def test_row_43_operator_pages_name_the_limit(ada: UserProfile) -> None:
    session, root = talk(ada, 3), operator()
    preview = reverse("admin:sessions_app_session_context", args=[session.pk])
    assert "at most 4000 characters" in page(root, preview, query=TOO_LONG, max_tokens=2000, format="xml")


@needs("lab")
def test_row_43_the_recall_console_names_the_limit(ada: UserProfile) -> None:
    console = reverse("admin:moments_app_memoryatom_recall")
    assert "at most 4000 characters" in page(operator(), console, user_id="ada", query=TOO_LONG)


@pytest.mark.slow
def test_row_43_the_search_of_each_list_names_the_limit(ada: UserProfile) -> None:
    talk(ada, 3)
    root = operator()
    reverse("admin:index")  # loads the lists
    searched = {model for model, shown in admin.site._registry.items() if shown.search_fields}
    assert Session in searched
    for model in searched - {User}:  # its page is not a list
        shown = page(root, list_url(model), q=TOO_LONG)
        assert "The search has 4,001 characters; the limit is 4,000." in shown, model


@pytest.mark.slow
def test_row_43_a_list_can_be_searched_with_the_longest_query(ada: UserProfile) -> None:
    root = operator()
    for model in (UserProfile, Session):
        assert "the limit is" not in page(root, list_url(model), q=LONGEST)


def test_row_43_the_query_of_a_chat_call_is_cut() -> None:
    bodies: dict[str, dict[str, Any]] = {
        "chat/completions": {"messages": [{"role": "user", "content": TOO_LONG}]},
        "responses": {"input": TOO_LONG},
    }
    for name, body in bodies.items():
        protocol = next(protocol for protocol in PROTOCOLS.values() if protocol.path.endswith(name))
        sent = protocol.read_request(json.dumps({"model": "any"} | body).encode())
        assert 0 < len(sent.query) <= QUERY_MAX_CHARS
