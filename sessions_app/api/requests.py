"""What every view does: read a request, find a row, answer a page."""

from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from sessions_app.api.fields import StrictSerializer
from sessions_app.models import Session, UserProfile

S = TypeVar("S", bound=StrictSerializer)


def parsed(serializer: type[S], data: Any) -> S:
    """A valid serializer over a body or a query.

    Raises:
        ValidationError: answered as 400, naming item and field.
    """
    checked = serializer(data=data)
    checked.is_valid(raise_exception=True)
    return checked


def query(serializer: type[S], request: Request) -> S:
    """A valid serializer over the query string."""
    return parsed(serializer, request.query_params.dict())


def session_or_404(user: UserProfile | None, session_id: str) -> Session:
    """This person's session; one that isn't there and somebody else's are answered alike."""
    session = Session.objects.for_user(user).select_related("user").filter(session_id=session_id).first()
    if session is None:
        raise NotFound
    return session


def paged(rows: QuerySet[Any], name: str, shape: type[BaseSerializer[Any]], asked: dict[str, Any]) -> Response:
    """A page of a list: `{<name>, total, has_more}`.

    Args:
        rows: in their order, filtered by person.
        name: of the list in the answer.
        shape: of an item.
        asked: with `limit` and `offset`.
    """
    total = rows.count()
    end = asked["offset"] + asked["limit"]
    page = shape(rows[asked["offset"] : end], many=True).data
    return Response({name: page, "total": total, "has_more": end < total})


def update(row: Model, values: dict[str, Any]) -> None:
    """Sets and saves the named fields, and `updated_at` where the row has it."""
    for name, value in values.items():
        setattr(row, name, value)
    kept = {field.name for field in row._meta.concrete_fields}
    row.save(update_fields=[*values, *({"updated_at"} & kept)])
