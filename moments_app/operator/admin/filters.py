"""Filters with a text field, which don't have to collect choices from the rows."""

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.contrib.filters.admin import TextFilter

from moments_app.models.job import title_of
from sessions_app.admin.base import NewestValuesFilter


class ExactFilter(TextFilter):  # type: ignore[misc]
    """Rows whose `lookup` equals the entered text."""

    lookup = ""

    def wanted(self, text: str) -> Any:
        """The value to search for."""
        return text

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        text = (self.value() or "").strip()
        return queryset.filter(**{self.lookup: self.wanted(text)}) if text else queryset


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


class TagFilter(ExactFilter):
    """Rows with the entered text as a tag."""

    def wanted(self, text: str) -> list[str]:
        return [text]


class UserFilter(ExactFilter):
    """Rows of one person."""

    title, parameter_name, lookup = "user_id", "user_id", "user__user_id"
