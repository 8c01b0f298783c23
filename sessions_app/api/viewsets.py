"""Base classes of all viewsets.

DRF authenticates a request, checks its permissions, and throttles it (`initial`). Then `dispatch` validates the input
and runs the action. For a person's resource, the action runs in a transaction that sees only that person's rows
(`PersonViewSet`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from functools import cache
from typing import Any, TypeVar

from django.core.exceptions import ObjectDoesNotExist
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from rest_framework import status
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.filters import BaseFilterBackend
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.routers import SimpleRouter
from rest_framework.serializers import BaseSerializer, ListSerializer
from rest_framework.viewsets import GenericViewSet

from sessions_app.api import schema  # noqa: F401 (registers the authentication with drf-spectacular)
from sessions_app.api.fields import CONTRADICTORY, PUBLIC_ID_MAX, PersonQuery, PublicIdField, StrictSerializer
from sessions_app.api.pagination import AnyPageQuery, PageQuery, RowPagination
from sessions_app.api.permissions import HasScope, key_of, missing_rows_as_404, user_id_of
from sessions_app.database.transactions import RequestKind, using_timeouts
from sessions_app.models import Session, UserProfile
from sessions_app.refusals import Refusal
from sessions_app.row_security import acting_for

M = TypeVar("M", bound=Model)


class ParameterFilter(BaseFilterBackend):
    """Filters a list by query parameters.

    The viewset's `filters` maps parameters to ORM lookups, or to functions that receive the QuerySet and the value.
    """

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: Any) -> QuerySet[Any]:
        for name in view.filters.keys() & view.validated_data.keys():
            value, lookup = view.validated_data[name], view.filters[name]
            queryset = lookup(queryset, value) if callable(lookup) else queryset.filter(**{lookup: value})
        return queryset


def api_router() -> SimpleRouter:
    return SimpleRouter(trailing_slash=False, use_regex_path=False)


class ApiViewSet(GenericViewSet[M]):
    # Without OPTIONS, because the OpenAPI schema replaces it.
    http_method_names = ["get", "head", "post", "patch", "delete"]
    permission_classes: Sequence[Any] = (HasScope,)
    pagination_class = RowPagination
    filter_backends = (ParameterFilter,)

    # Keyed by action:
    inputs: Mapping[str, type[StrictSerializer]] = {}  # input serializers, for the body or the query string
    answers: Mapping[str, Any] = {}  # response serializers, or responses by status; by default `serializer_class`
    refuses: Mapping[str, Sequence[type[Refusal]]] = {}  # refusals that are specific to the action, for the schema
    scopes: Mapping[str, str] = {}  # required scope, if it differs from the method's default

    filters: Mapping[str, str | Callable[[Any, Any], Any]] = {}  # filters of the list; see `ParameterFilter`
    long_running: Sequence[str] = ()  # actions whose statements may take minutes

    validated_data: dict[str, Any]  # the input without `user_id`
    requested_user_id: str | None  # the `user_id` in the request

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Handle a request like DRF, but first validate the input, and run the action in its transaction."""
        self.args, self.kwargs = args, kwargs
        self.request = self.initialize_request(request, *args, **kwargs)
        self.headers = self.default_response_headers
        try:
            self.initial(self.request, *args, **kwargs)
            if str(request.method).lower() not in self.action_map:
                self.http_method_not_allowed(self.request)
            self.validate()
            with using_timeouts(RequestKind.LONG) if self.action in self.long_running else nullcontext(), self.acting():
                response = getattr(self, self.action)(self.request, *args, **kwargs)
        except Exception as error:
            response = self.handle_exception(error)
        self.response = self.finalize_response(self.request, response, *args, **kwargs)
        return self.response

    def validate(self) -> None:
        """Validate the input and the ids in the URL. Raise ValidationError if one is invalid or the user_ids differ."""
        _check_ids(self.kwargs)
        serializer, in_body = self.get_input_class(), self.request.method in ("POST", "PATCH")
        data = self.request.data if in_body and serializer else self.request.query_params.dict()
        self.validated_data = serializer.validated(data, is_text=not in_body) if serializer else {}
        named = self.validated_data.pop("user_id", None)
        self.requested_user_id = self.kwargs.get("user_id", named)
        if named not in (None, self.requested_user_id):
            raise ValidationError(
                {"user_id": "user_id differs from the user in the URL. Send the same id, or omit user_id."},
                CONTRADICTORY,
            )

    @property
    def needs_person(self) -> bool:
        """Return whether a service key has to name a person."""
        return False

    def acting(self) -> AbstractContextManager[None]:
        return nullcontext()

    def get_input_class(self) -> type[StrictSerializer] | None:
        return self.inputs.get(self.action, AnyPageQuery if self.action == "list" else None)

    def get_serializer_class(self) -> type[BaseSerializer[Any]]:
        answer: Any = self.answers.get(self.action, self.serializer_class)
        found: type[BaseSerializer[Any]] = next(iter(answer.values())) if isinstance(answer, Mapping) else answer
        return found

    def get_serializer(self, instance: Any, *, many: bool = False) -> Any:
        serializer_class: Any = self.get_serializer_class()
        serializer, context = copy(_built(serializer_class)), self.get_serializer_context()
        serializer.instance, serializer._context = instance, context
        return ListSerializer(instance, child=serializer, context=context) if many else serializer

    def get_object(self) -> M:
        """Return the row with the id in the URL, ignoring the list's filters. Raise NotFound if there is none."""
        name = self.lookup_url_kwarg or self.lookup_field
        row = one_or_404(self.get_queryset(), **{self.lookup_field: self.kwargs[name]})
        self.check_object_permissions(self.request, row)
        return row

    def last_row(self) -> M:
        """Return the row that `after` identifies: the last one of the previous page.

        Raise NotFound if it doesn't exist.
        """
        return one_or_404(self.get_queryset(), **{self.lookup_field: self.validated_data["after"]})

    @property
    def actor(self) -> str:
        """The API key's actor name, as stored in jobs and events."""
        return key_of(self.request).actor

    @property
    def application(self) -> int:
        return key_of(self.request).application_id

    def answer(self, value: Any, status: int = status.HTTP_200_OK) -> Response:
        return Response(self.get_serializer(value).data, status)

    def created(self, row: Any, *, is_new: bool) -> Response:
        return self.answer(row, status.HTTP_201_CREATED if is_new else status.HTTP_200_OK)


class PersonViewSet(ApiViewSet[M]):
    """A resource of one person. Its queryset is filtered by person, and row-level security limits what it reads."""

    creates_person: Sequence[str] = ()  # actions that create the person if they don't exist
    person_optional: Sequence[str] = ()  # actions for which a service key doesn't have to name a person
    own_transaction: Sequence[str] = ()  # actions that open their transactions themselves

    person: UserProfile | None  # None if no person is named, or if the key may not see the person

    def get_queryset(self) -> Any:
        rows: Any = super().get_queryset()
        return rows.for_user(self.person)

    def get_input_class(self) -> type[StrictSerializer] | None:
        return self.inputs.get(self.action, PageQuery if self.action == "list" else PersonQuery)

    @property
    def needs_person(self) -> bool:
        return self.action not in self.person_optional

    def acting(self) -> AbstractContextManager[None]:
        """Return the person's transaction, or an empty context for an action that opens its own."""
        return nullcontext() if self.action in self.own_transaction else self.transaction()

    def user_id(self) -> str | None:
        create = self.action in self.creates_person
        return user_id_of(self.request, self.requested_user_id, create=create, is_needed=self.needs_person)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Open a transaction that sees only the person's rows, and set `person`."""
        writes = self.request.method not in SAFE_METHODS and self.scopes.get(self.action) != "read"
        create = self.action in self.creates_person
        entered = acting_for(self.user_id(), application=self.application, create=create, for_write=writes)
        with missing_rows_as_404(), entered as self.person:
            yield

    @property
    def found_person(self) -> UserProfile:
        if self.person is None:
            raise NotFound
        return self.person


def one_or_404(rows: QuerySet[M], **named: Any) -> M:
    """Return the row with this id. Raise NotFound if it doesn't exist, or belongs to another person."""
    try:
        return rows.get(**named)
    except ObjectDoesNotExist:
        raise NotFound from None


def session_or_404(person: UserProfile | None, session_id: str) -> Session:
    """Return this person's session. Raise NotFound if it doesn't exist, or belongs to another person."""
    session = Session.objects.of_person(person, session_id) if person else None
    if session is None:
        raise NotFound
    return session


def update(row: Model, values: dict[str, Any]) -> None:
    """Lock the row, and save the values, and `updated_at` if there is one. Raise NotFound if the row was deleted."""
    if not type(row)._base_manager.select_for_update(no_key=True).filter(pk=row.pk).exists():
        raise NotFound
    for name, value in values.items():
        setattr(row, name, value)
    present = {field.name for field in row._meta.concrete_fields}
    row.save(update_fields=[*values, *({"updated_at"} & present)])


def _check_ids(named: Mapping[str, Any]) -> None:
    """Raise ValidationError if an id in the URL is too long."""
    problems: dict[str, Any] = {}
    for name, value in named.items():
        if isinstance(value, str) and len(value) > PUBLIC_ID_MAX:
            try:
                PublicIdField().run_validation(value)
            except ValidationError as error:
                problems[name] = error.detail
    if problems:
        raise ValidationError(problems)


@cache
def _built(serializer: type[BaseSerializer[Any]]) -> Any:
    """Return a cached serializer for requests to copy, because building its fields is expensive."""
    built: Any = serializer()
    built.fields  # noqa: B018 (builds them)
    return built
