"""`lock_rows`: lock several rows, in the order in which all do who lock several: so nobody waits in a circle."""

from typing import Any

from django.db.models import QuerySet


def lock_rows(rows: QuerySet[Any]) -> None:
    """Lock rows of a table until the transaction ends; others may still refer to them."""
    list(rows.order_by("pk").select_for_update(no_key=True).values_list("pk"))
