"""Pagination of lists: `{<things>, total, has_more}`. The key `<things>` is the last part of the list's path."""

from typing import Any

from django.db.models import Model, Q, QuerySet
from rest_framework.exceptions import ValidationError
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app.api.fields import CONTRADICTORY, IntegerField, PersonQuery, StrictSerializer

PAGE_MAX = 200


class AnyPageQuery(StrictSerializer):
    """A page of a list that isn't about one person."""

    limit = IntegerField(min_value=1, max_value=PAGE_MAX, default=50)
    offset = IntegerField(min_value=0, max_value=1_000_000, default=0)


class PageQuery(AnyPageQuery, PersonQuery):
    """A page of a list."""


class RowPagination(BasePagination):
    """Paginates by `limit`, and by `offset` or `after`, which identifies the last row of the previous page.

    The viewset has validated the parameters. A list that accepts `after` needs an index for its order.

    Attributes:
        rows_key: The key of the rows in the response.
    """

    rows_key: str

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> Any:
        limit, offset = view.validated_data["limit"], view.validated_data["offset"]
        self.rows_key = rows_key_at(request.path)
        self.total = queryset.count()
        if "after" not in view.validated_data:
            self.has_more = offset + limit < self.total
            return queryset[offset : offset + limit]
        if offset:
            raise ValidationError({"offset": "Use after or offset, not both."}, CONTRADICTORY)
        rows = list(following(queryset, view.last_row())[: limit + 1])
        self.has_more = len(rows) > limit
        return rows[:limit]

    def get_paginated_response(self, data: Any) -> Response:
        return Response({self.rows_key: data, "total": self.total, "has_more": self.has_more})

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        fields = {self.rows_key: schema, "total": {"type": "integer"}, "has_more": {"type": "boolean"}}
        return {"type": "object", "properties": fields, "required": sorted(fields)}

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        return []  # the input serializer of the action declares them


def following(rows: QuerySet[Any], last: Model) -> QuerySet[Any]:
    """Return the rows after `last`. The QuerySet's order must be descending in every field."""
    names = [str(name).removeprefix("-") for name in rows.query.order_by]
    after, equal = Q(), Q()
    for name in names:
        value = getattr(last, name)
        after |= equal & Q(**{f"{name}__lt": value})
        equal &= Q(**{name: value})
    return rows.filter(
        after, **{f"{names[0]}__lte": getattr(last, names[0])}
    )  # filter by the first field as well, so that PostgreSQL uses the index


def rows_key_at(path: str) -> str:
    return path.rpartition("/")[2]
