"""Errors as a browser and as a client of the API get them."""

import pytest
from django.test import Client, RequestFactory
from pytest_django import DjangoAssertNumQueries

from sessions_app.api.errors import server_error
from tests.support.operator import operator

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("path", ["/admin/nothing/", "/admin/sessions_app/session/999/build/", "/nothing"])
def test_an_operator_gets_a_page_for_an_address_that_leads_nowhere(path: str) -> None:
    root = operator()
    answer = root.post(path) if path.endswith("/build/") else root.get(path)
    assert answer.status_code == 404
    assert "<h1>Page not found</h1>" in answer.content.decode()


def test_a_client_of_the_api_gets_json(client: Client) -> None:
    answer = client.get("/api/v1/nothing")
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (404, "not_found")


def test_who_may_not_is_told_so() -> None:
    answer = operator("nothing").get("/admin/sessions_app/session/")
    assert answer.status_code == 403
    assert "have permission to see or do this" in answer.content.decode()


def test_a_form_that_is_too_old_is_refused_with_what_to_do() -> None:
    client = Client(enforce_csrf_checks=True)
    answer = client.post("/admin/login/", {"username": "x", "password": "x"})
    assert answer.status_code == 403
    assert "reload the page" in answer.content.decode()


def test_an_error_has_a_page_that_asks_nothing_of_the_database(
    rf: RequestFactory, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(0):
        answer = server_error(rf.get("/admin/"))
    assert answer.status_code == 500
    assert "Server error" in answer.content.decode()
