"""Read a page of rows, and check whether more follow."""

from typing import TypeVar

from django.db.models import Model, QuerySet

Row = TypeVar("Row", bound=Model)


def first_of(rows: QuerySet[Row], size: int) -> tuple[list[Row], Row | None]:
    """Read the first rows, and one more to check whether more follow.

    Returns:
        The rows, at most `size`, and the last of them if more follow, otherwise None.
    """
    found = list(rows[: size + 1])
    return found[:size], found[size - 1] if len(found) > size else None
