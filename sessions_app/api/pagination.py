"""Pages of lists: `{<things>, total, has_more}`, where the address of the list says what the things are."""

from typing import Any

from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response

from sessions_app.api.fields import IntegerField, StrictSerializer
from sessions_app.api.person import PersonQuery

PAGE_MAX = 200


class AnyPageQuery(StrictSerializer):
    """A page of a list that belongs to no person."""

    limit = IntegerField(min_value=1, max_value=PAGE_MAX, default=50)
    offset = IntegerField(min_value=0, max_value=1_000_000, default=0)


class PageQuery(AnyPageQuery, PersonQuery):
    """A page of a list."""


class OffsetPagination(BasePagination):
    """Pages by `limit` and `offset`, which the viewset has validated.

    Attributes:
        things: the name of the rows in the response.
    """

    things: str

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> Any:
        """Return the rows of the page."""
        limit, offset = view.validated_data["limit"], view.validated_data["offset"]
        self.things = things_at(request.path)
        self.total = queryset.count()
        self.has_more = offset + limit < self.total
        return queryset[offset : offset + limit]

    def get_paginated_response(self, data: Any) -> Response:
        return Response({self.things: data, "total": self.total, "has_more": self.has_more})

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON schema of a page.

        Args:
            schema: of its rows.
        """
        fields = {self.things: schema, "total": {"type": "integer"}, "has_more": {"type": "boolean"}}
        return {"type": "object", "properties": fields, "required": sorted(fields)}

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        """Return nothing: the input of the action has the parameters."""
        return []


def things_at(path: str) -> str:
    """Return the name of the things in a list: the last part of its path."""
    return path.rpartition("/")[2]
