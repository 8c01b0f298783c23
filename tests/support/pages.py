"""The operator's pages, asked for as a browser asks."""

from typing import Any

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

PLANTED = "<script>alert('planted')</script>"
MAX_QUERIES = 20


def change_url(thing: Any) -> str:
    """Address of the page of one row."""
    return reverse(f"admin:{thing._meta.app_label}_{thing._meta.model_name}_change", args=[thing.pk])


def list_url(model: Any) -> str:
    """Address of the list of a model."""
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")


def page(client: Client, url: str, **query: Any) -> str:
    """What is answered there; it has to be answered well."""
    answer = client.get(url, query)
    assert answer.status_code == 200
    return answer.content.decode()


def queries_of(client: Client, url: str) -> int:
    """How many queries the page takes, once what is cached for good is cached."""
    page(client, url)  # what is cached for good is cached now
    with CaptureQueriesContext(
        connection,
    ) as captured:
        page(client, url)
    return len(captured)
