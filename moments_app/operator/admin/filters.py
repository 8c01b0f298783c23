"""Filters with a text field, which don't have to collect choices from the rows."""

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.contrib.filters.admin import TextFilter


class ExactFilter(TextFilter):  # type: ignore[misc]
    """Rows whose `lookup` equals the entered text."""

    lookup = ""

    def wanted(self, text: str) -> Any:
        """The value to search for."""
        return text

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        text = (self.value() or "").strip()
        return queryset.filter(**{self.lookup: self.wanted(text)}) if text else queryset


class TagFilter(ExactFilter):
    """Rows with the entered text as a tag."""

    def wanted(self, text: str) -> list[str]:
        return [text]


class UserFilter(ExactFilter):
    """Rows of one person."""

    title, parameter_name, lookup = "user_id", "user_id", "user__user_id"
