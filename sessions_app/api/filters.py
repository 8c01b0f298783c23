"""Filters of lists."""

from typing import Any

from django.db.models import QuerySet
from rest_framework.filters import BaseFilterBackend
from rest_framework.request import Request


class ParameterFilter(BaseFilterBackend):
    """Filters a list by query parameters. The viewset's `filters` maps each parameter.

    A parameter is mapped to an ORM lookup, or to a function that receives the QuerySet and the value.
    """

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: Any) -> QuerySet[Any]:
        for name in view.filters.keys() & view.validated_data.keys():
            value, lookup = view.validated_data[name], view.filters[name]
            queryset = lookup(queryset, value) if callable(lookup) else queryset.filter(**{lookup: value})
        return queryset
