"""Operators' pages, requested like a browser."""

from typing import Any

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

PLANTED = "<script>alert('planted')</script>"
MAX_QUERIES = 20


def change_url(thing: Any) -> str:
    """Return the URL of a row's page."""
    return reverse(f"admin:{thing._meta.app_label}_{thing._meta.model_name}_change", args=[thing.pk])


def list_url(model: Any) -> str:
    """Return the URL of a model's list."""
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


def page(client: Client, url: str, **query: Any) -> str:
    """Return the HTML of a page, which must have status 200."""
    answer = client.get(url, query)
    assert answer.status_code == 200
    return answer.content.decode()


def queries_of(client: Client, url: str) -> int:
    """Return the number of queries of a page when its caches are warm."""
    page(client, url)  # fills the permanent caches
    with CaptureQueriesContext(
        connection,
    ) as captured:
        page(client, url)
    return len(captured)
