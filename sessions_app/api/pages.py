"""Pages of lists: `{<things>, total, has_more}`."""

from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers

from sessions_app.api.fields import IntegerField, StrictSerializer
from sessions_app.api.person import PersonQuery

PAGE_MAX = 200


class AnyPageQuery(StrictSerializer):
    """A page of a list that is no person's."""

    limit = IntegerField(min_value=1, max_value=PAGE_MAX, default=50)
    offset = IntegerField(min_value=0, max_value=1_000_000, default=0)


class PageQuery(AnyPageQuery, PersonQuery):
    """A page of a list."""


# Without a docstring, which the API's description would give to each list that has none of its own.
class PageAnswer(serializers.Serializer[Any]):
    total = serializers.IntegerField()
    has_more = serializers.BooleanField()

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Return the fields, those of the list itself first."""
        fields = super().get_fields()
        for name in PageAnswer._declared_fields:
            fields[name] = fields.pop(name)
        return fields

    @classmethod
    def of(
        cls, rows: QuerySet[Any], *, limit: int, offset: int, context: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return a page of these rows, which are in their order and filtered by person.

        Args:
            rows: Of one person, in the order of the list.
            limit: The most rows of a page.
            offset: The number of rows before the page.
            context: What the rows' serializer needs to know.
        """
        page = cls(context=context or {})
        name = next(iter(page.fields))
        total = rows.count()
        end = offset + limit
        return page.to_representation({name: rows[offset:end], "total": total, "has_more": end < total})
