"""A part of many rows, and whether there are more."""

from typing import TypeVar

from django.db.models import Model, QuerySet

Row = TypeVar("Row", bound=Model)


def first_of(rows: QuerySet[Row], size: int) -> tuple[list[Row], Row | None]:
    """Read the first rows, and one beyond to learn whether there are more.

    Returns:
        The rows, at most `size`, and the last of them where more follow; None where none do.
    """
    found = list(rows[: size + 1])
    return found[:size], found[size - 1] if len(found) > size else None
