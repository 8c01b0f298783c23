"""`lock_rows`: lock several rows in the order of their primary keys, to avoid deadlocks."""

from typing import Any

from django.db.models import QuerySet


def lock_rows(rows: QuerySet[Any]) -> None:
    """Lock rows of a table until the transaction ends. New references to them are not blocked."""
    list(rows.order_by("pk").select_for_update(no_key=True).values_list("pk"))
