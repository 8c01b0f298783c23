"""Filters that show the admin's words instead of the code's."""

from collections.abc import Iterator
from typing import Any

from django.contrib import admin

from moments_app.models.job import title_of
from sessions_app.admin.base import NewestValuesFilter


class KindFilter(admin.ChoicesFieldListFilter):
    """The choices of a field, in the admin's words."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.title = "kind"


class TitleFilter(NewestValuesFilter):
    """The titles of the processes or purposes in a field."""

    def choices(self, changelist: Any) -> Iterator[Any]:
        first, *others = super().choices(changelist)
        yield first
        yield from ({**choice, "display": title_of(str(choice["display"]))} for choice in others)
