"""Error responses to browsers and to clients of the API."""

import pytest
from django.test import Client, RequestFactory
from pytest_django import DjangoAssertNumQueries

from sessions_app.api.error_pages import server_error
from tests.support.operator import operator

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("path", ["/admin/nothing/", "/admin/sessions_app/session/999/build/", "/nothing"])
def test_an_operator_gets_a_page_for_an_unknown_url(path: str) -> None:
    root = operator()
    answer = root.post(path) if path.endswith("/build/") else root.get(path)
    assert answer.status_code == 404
    assert "<h1>Page not found</h1>" in answer.content.decode()


def test_a_client_of_the_api_gets_json(client: Client) -> None:
    answer = client.get("/api/v1/nothing")
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (404, "not_found")


def test_an_operator_without_permission_gets_a_page_that_says_so() -> None:
    answer = operator("nothing").get("/admin/sessions_app/session/")
    assert answer.status_code == 403
    assert "have permission to see or do this" in answer.content.decode()


def test_a_form_with_an_expired_token_is_refused_with_advice() -> None:
    client = Client(enforce_csrf_checks=True)
    answer = client.post("/admin/login/", {"username": "x", "password": "x"})
    assert answer.status_code == 403
    assert "reload the page" in answer.content.decode()


def test_the_page_of_a_server_error_needs_no_database(
    rf: RequestFactory, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(0):
        answer = server_error(rf.get("/admin/"))
    assert answer.status_code == 500
    assert "Server error" in answer.content.decode()
