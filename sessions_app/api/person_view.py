"""The base of all views: what was sent is checked, the key's person found, and their transaction opened.

A view's method is declared with `operation`, works with `self.query`, `self.body` and `self.person`, and answers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from django.db.models import Model, QuerySet
from django.http.response import HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.views import APIView

from sessions_app.api.fields import CONTRADICTORY, PUBLIC_ID_MAX, PublicIdField, StrictSerializer
from sessions_app.api.pages import PageAnswer
from sessions_app.api.person import gone_is_not_found, key_of, user_id_of
from sessions_app.api.schema import ABOUT_NOBODY, refused
from sessions_app.daily_limits import count_values
from sessions_app.limited_operators import unlimited
from sessions_app.limits import Kind, limited
from sessions_app.models import UserProfile
from sessions_app.refusals import Refusal
from sessions_app.row_security import acting_for

P = ParamSpec("P")
V = TypeVar("V", bound="PersonView")
M = TypeVar("M", bound=Model)
Q = TypeVar("Q", bound=QuerySet[Any])


class PersonView(APIView):
    """A call about one person.

    Attributes:
        query: the query string as its serializer has validated it, without `user_id`.
        body: the body, likewise.
        named: the `user_id` in the request; None where there is none.
        person: None for nobody, or for somebody whom the key may not see, which look alike.
    """

    http_method_names = [
        "get",
        "head",
        "post",
        "patch",
        "delete",
    ]  # the description tells more than OPTIONS

    query: dict[str, Any]
    body: dict[str, Any]
    person: UserProfile | None
    named: str | None

    def check(self, query: type[StrictSerializer] | None, body: type[StrictSerializer] | None) -> None:
        """Validate what was sent.

        Raises:
            ValidationError: answered as 400, naming item and field; or address and request name different people.
        """
        _check_ids(self.kwargs)
        self.query = query.validated(self.request.query_params.dict(), is_text=True) if query else {}
        self.body = body.validated(self.request.data) if body else {}
        named = (self.body if body else self.query).pop("user_id", None)
        self.named = self.kwargs.get("user_id", named)
        if named not in (None, self.named):
            raise ValidationError({"user_id": "The address names another person."}, CONTRADICTORY)

    @property
    def actor(self) -> str:
        """The caller, as the event log and jobs name it."""
        return key_of(self.request).actor

    @property
    def application(self) -> int:
        """The primary key of the caller's application."""
        return key_of(self.request).application_id

    def user_id(self, *, create: bool = False, is_needed: bool = True) -> str | None:
        """Return the `user_id` of the person; see `user_id_of`."""
        return user_id_of(self.request, self.named, create=create, is_needed=is_needed)

    @contextmanager
    def transaction(self, *, create: bool = False, is_needed: bool = True) -> Iterator[None]:
        """Open the transaction that sees the person's rows alone.

        Args:
            create: make the person when they aren't there.
            is_needed: a service key has to name the person.

        Raises:
            NotFound: what was written is about something that was deleted meanwhile.
        """
        writes = self.request.method not in SAFE_METHODS
        user_id = self.user_id(create=create, is_needed=is_needed)
        entered = acting_for(user_id, application=self.application, create=create, holding=writes)
        with gone_is_not_found(), entered as self.person:
            yield

    @property
    def found_person(self) -> UserProfile:
        """The person.

        Raises:
            NotFound: there is none.
        """
        if self.person is None:
            raise NotFound
        return self.person

    def page(self, answer: type[PageAnswer], rows: QuerySet[Any], context: dict[str, Any] | None = None) -> Response:
        """Answer the page of these rows that the query asks for."""
        return Response(answer.of(rows, limit=self.query["limit"], offset=self.query["offset"], context=context))

    def filtered(self, rows: Q, **lookups: str) -> Q:
        """Return the rows that match the parameters of the query.

        Args:
            rows: of the person.
            lookups: of the rows, by name of the parameter; one that is not given filters nothing.
        """
        return rows.filter(**{lookup: self.query[name] for name, lookup in lookups.items() if name in self.query})


def _check_ids(named: Mapping[str, Any]) -> None:
    """Refuse ids in an address that are longer than an id may be.

    Raises:
        ValidationError: naming them, and the limit.
    """
    problems: dict[str, Any] = {}
    for name, value in named.items():
        if isinstance(value, str) and len(value) > PUBLIC_ID_MAX:
            try:
                PublicIdField().run_validation(value)
            except ValidationError as error:
                problems[name] = error.detail
    if problems:
        raise ValidationError(problems)


def operation(
    answers: Any,
    *,
    query: type[StrictSerializer] | None = None,
    body: type[StrictSerializer] | None = None,
    refuses: Sequence[type[Refusal]] = (),
    operation_id: str | None = None,
    creates_person: bool = False,
    needs_person: bool = True,
    in_transaction: bool = True,
    sees_all: bool = False,
    is_long: bool = False,
) -> Callable[[Callable[Concatenate[V, P], HttpResponseBase]], Callable[Concatenate[V, Request, P], HttpResponseBase]]:
    """Declare a view's method: what it takes and answers, for the API's description too.

    Args:
        answers: a serializer, or several by status.
        query: the serializer of the query string.
        body: the serializer of the body.
        refuses: what this call may be refused with, beside what any may.
        operation_id: where the description should not make one up.
        creates_person: make the person when they aren't there.
        needs_person: a service key has to name the person.
        in_transaction: run the method in the person's transaction; False where it opens its own.
        sees_all: its transactions are not limited to a person's rows; the method filters by person itself.
        is_long: a statement of it may rightly take minutes.
    """

    def declare(
        method: Callable[Concatenate[V, P], HttpResponseBase],
    ) -> Callable[Concatenate[V, Request, P], HttpResponseBase]:
        @wraps(method)
        def handle(view: V, request: Request, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            view.check(query, body)
            patience = limited(Kind.LONG) if is_long else nullcontext()
            opened = view.transaction(create=creates_person, is_needed=needs_person)
            transaction = opened if in_transaction else nullcontext()
            with patience, unlimited() if sees_all else nullcontext(), transaction:
                return method(view, *args, **kwargs)

        describe = extend_schema(
            operation_id,
            parameters=[query] if query else None,
            request=body,
            responses=(answers if isinstance(answers, dict) else {200: answers}) | refused(refuses),
            extensions=None if needs_person else {ABOUT_NOBODY: True},
        )
        return describe(handle)

    return declare


def one_or_404(rows: QuerySet[M], **named: Any) -> M:
    """Return the row of this name; one that isn't there and somebody else's are answered alike.

    Raises:
        NotFound: there is none.
    """
    row = rows.filter(**named).first()
    if row is None:
        raise NotFound
    return row


def created(answer: BaseSerializer[Any], *, is_new: bool) -> Response:
    """Answer what was to be made: 201 when it was, 200 when it was there already."""
    return Response(answer.data, status=status.HTTP_201_CREATED if is_new else status.HTTP_200_OK)


_presenters: dict[type[BaseSerializer[Any]], BaseSerializer[Any]] = {}


def presented(answer: type[BaseSerializer[Any]], value: Any) -> Any:
    """Return a value as a serializer describes it; one that is made once serves all, for making its fields is dear."""
    if answer not in _presenters:
        _presenters[answer] = answer()
    return _presenters[answer].to_representation(value)


def update(row: Model, values: dict[str, Any]) -> None:
    """Lock the row, then set and save the named fields, and `updated_at` if the row has it.

    Raises:
        NotFound: The row was deleted after it was read.
    """
    if not type(row)._base_manager.select_for_update(no_key=True).filter(pk=row.pk).exists():
        raise NotFound
    for name, value in values.items():
        setattr(row, name, value)
    present = {field.name for field in row._meta.concrete_fields}
    row.save(update_fields=[*values, *({"updated_at"} & present)])
    count_values(*values.values())
