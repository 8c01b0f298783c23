"""Filters that show terms of the code in the words of the admin."""

from collections.abc import Iterator
from typing import Any

from django.contrib import admin

from moments_app.models.job import title_of
from sessions_app.admin.base import NewestValuesFilter


class KindFilter(admin.ChoicesFieldListFilter):
    """The choices of a field whose name is a term of the code."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.title = "kind"


class TitleFilter(NewestValuesFilter):
    """Rows of a process, or of a purpose of model calls, by its title."""

    def choices(self, changelist: Any) -> Iterator[Any]:
        first, *others = super().choices(changelist)
        yield first
        yield from ({**choice, "display": title_of(str(choice["display"]))} for choice in others)
