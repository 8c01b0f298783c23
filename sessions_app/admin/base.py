"""Base classes of the operators' lists, with filters and searches."""

from collections.abc import Sequence
from datetime import date, datetime, time
from typing import Any, ClassVar, cast

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import SEARCH_VAR
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.forms import SimpleArrayField
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import ForeignKey, Model, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Substr
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import URLPattern, path
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.text import capfirst
from django.utils.timezone import make_aware
from unfold.admin import ModelAdmin
from unfold.contrib.filters.admin import FieldTextFilter, RangeDateFilter, TextFilter
from unfold.paginator import InfinitePaginator
from unfold.utils import parse_date_str
from unfold.widgets import UnfoldAdminTextareaWidget

from sessions_app.admin.access_log import note_reading, people_of
from sessions_app.admin.applications import (
    APPLICATION_NAME,
    ApplicationFilter,
    are_several,
    of_application,
    with_application_names,
)
from sessions_app.admin.links import link_column
from sessions_app.admin.views import FormPage, OperatorView, RowView, may_see
from sessions_app.database.several_servers import read_for_page
from sessions_app.lexemes import QUERY_MAX_CHARS
from sessions_app.models import ApiKey
from sessions_app.models.event import KEY_ACTOR, named_actor

MAX_FOUND = 1_000
# The query parameters that limit a list to one person.
PERSON_PARAMETERS = {"q", "user_id", "user__id__exact", "session__id__exact"}


TEXT_FILTERS = (TextFilter, FieldTextFilter, RangeDateFilter)


class LinesField(SimpleArrayField):
    """An array field with one item per line. Django separates items by commas, but these items may contain commas."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        widget = UnfoldAdminTextareaWidget(attrs={"rows": 6})
        text = f"{kwargs.get('help_text', '')} Enter one per line.".strip()
        super().__init__(*args, **kwargs | {"delimiter": "\n", "widget": widget, "help_text": text})

    def to_python(self, value: Any) -> Any:
        if isinstance(value, str):
            value = "\n".join(line for line in value.splitlines() if line.strip())
        return super().to_python(value)


def _refers(model: type[Model], name: str) -> bool:
    """Return whether a model has a foreign key with this name to a table of the platform."""
    column = next((column for column in model._meta.concrete_fields if column.name == name), None)
    return isinstance(column, ForeignKey) and column.related_model._meta.app_label in ("sessions_app", "moments_app")


def application_lookups(model: type[Model]) -> tuple[str, ...]:
    """Return the ORM lookups from a row to its application, directly or through its person or stream."""
    own = ("application",) if _refers(model, "application") else ()
    if own and not model._meta.get_field("application").null:
        return own
    return tuple(f"{name}__application" for name in ("user", "stream") if _refers(model, name)) + own


def add_views(model: type[Model], *views: type[OperatorView]) -> None:
    """Add an optional package's pages and actions to the admin of a model."""
    shown_by = type(cast(PageAdmin, admin.site.get_model_admin(model)))
    shown_by.views = (*shown_by.views, *views)


class PageAdmin(ModelAdmin):  # type: ignore[misc]
    """A list that stays fast with a million rows. It counts rows only once, and makes no query per row."""

    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # each choice would count rows of the whole table
    list_per_page = 50
    compressed_fields = False
    formfield_overrides: ClassVar = {ArrayField: {"form_class": LinesField}}
    warn_unsaved_form = True
    when_empty = ""  # the sentence that an empty list shows
    views: ClassVar[Sequence[type[OperatorView]]] = ()  # the pages and actions of the list
    change_page: ClassVar[type[RowView[Any]] | None] = None  # the page of a row; replaces Django's form
    form_page: ClassVar[type[FormPage[Any]]] = FormPage  # supplies the templates before and after that form
    search_fields: Sequence[str] = ()
    # A search finds rows where one of these fields starts with the term. If there are no `search_fields`, the default
    # is the ids of the rows' person and session.
    search_prefixes: Sequence[str] = ()
    open_lookups: ClassVar[Sequence[str]] = ()  # lookups to accept in URLs, in addition to those of the list's filters
    shows_personal_data = True  # whether the list shows personal data other than names
    may_add = may_change = may_delete = True  # False forbids this even to operators with the permission
    # The ORM lookups from a row to its application. The first one that isn't null applies. By default, they are derived
    # from the model's foreign keys. Empty for site-wide rows.
    applications: Sequence[str] = ()
    user_link = link_column("user", "User")
    session_link = link_column("session", "Session")

    def __init__(self, model: type[Model], admin_site: admin.AdminSite) -> None:
        super().__init__(model, admin_site)
        self.applications = self.applications or application_lookups(model)
        if not self.search_fields:
            names = {"session_id": "session__session_id", "user_id": "user__user_id"}
            found = {name: lookup for name, lookup in names.items() if _refers(model, lookup.split("__")[0])}
            self.search_fields = self.search_prefixes = tuple(found.values())
            self.search_help_text = f"Start of a {' or '.join(found)}" if found else ""
        if _refers(model, "user") and self.paginator is Paginator:
            self.paginator: type[Paginator[Any]] = InfinitePaginator
        filters = [each[1] if isinstance(each, tuple) else each for each in self.list_filter]
        self.list_filter_submit = any(isinstance(each, type) and issubclass(each, TEXT_FILTERS) for each in filters)
        self.change_form_outer_before_template = self.form_page.before
        self.change_form_outer_after_template = self.form_page.after

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.may_add and bool(super().has_add_permission(request))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may_change and bool(super().has_change_permission(request, obj))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may_delete and bool(super().has_delete_permission(request, obj))

    def get_urls(self) -> list[URLPattern]:
        """Put the URLs of the views before Django's, because one of Django's matches any text as a primary key."""
        return [*map(self._pattern, self.views), *super().get_urls()]

    def _pattern(self, view: type[OperatorView]) -> URLPattern:
        name = f"{self.opts.app_label}_{self.opts.model_name}_{view.name}"
        shown = view.as_view(admin=self)
        pattern: URLPattern = path(view.route, shown if view.is_open else self.admin_site.admin_view(shown), name=name)
        return pattern

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip().replace("\0", "")
        return (self.search(request, queryset, term) if term else queryset), False

    def search(self, request: HttpRequest, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        if self.search_prefixes:
            return prefix_search(rows, term, *self.search_prefixes)
        found: QuerySet[Any] = super().get_search_results(request, rows, term)[0]
        return found

    # --- applications, if there are several ---

    def of_application(self, application: int) -> Q:
        return of_application(self.applications, application)

    def with_application(self, rows: Any) -> Any:
        return with_application_names(rows, self.applications)

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = super().get_queryset(request)
        return self.with_application(rows) if self.applications and are_several() else rows

    def get_list_display(self, request: HttpRequest) -> Any:
        columns = super().get_list_display(request)
        return (*columns, "application_column") if self.applications and are_several() else columns

    def get_list_filter(self, request: HttpRequest) -> Any:
        filters = super().get_list_filter(request)
        return (*filters, ApplicationFilter) if self.applications and are_several() else filters

    @admin.display(description="Application", empty_value="all applications")
    def application_column(self, row: Any) -> Any:
        return getattr(row, APPLICATION_NAME, None)

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return lookup in self.open_lookups or super().lookup_allowed(lookup, value, request)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Use the model's name as the title. Django's title would be "Select … to change"."""
        if request.method == "POST" and not self.get_actions(request):
            raise PermissionDenied  # Django would say that no action was chosen
        return read_for_page(request, lambda: self._changelist(request, extra_context))

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Remove NUL characters, which the database rejects, and limit the length of searches."""
        asked = request.GET.copy()
        for name, texts in asked.lists():
            asked.setlist(name, [text.replace("\0", "") for text in texts])
        if (size := len(asked.get(SEARCH_VAR, ""))) > QUERY_MAX_CHARS:
            del asked[SEARCH_VAR]
            text = f"The search has {size:,} characters; the limit is {QUERY_MAX_CHARS:,}. Shorten it and search again."
            messages.error(request, text)
        request.GET = asked  # type: ignore[assignment]  # only this method changes it
        return super().get_changelist_instance(request)

    def list_context(self, request: HttpRequest) -> dict[str, Any]:
        return {}

    def _changelist(self, request: HttpRequest, extra_context: dict[str, Any] | None) -> HttpResponse:
        shown_with = {"title": capfirst(str(self.opts.verbose_name_plural))} | self.list_context(request)
        response: HttpResponse = super().changelist_view(request, shown_with | (extra_context or {}))
        shown = getattr(response, "context_data", {}).get("cl")
        if shown and (self.shows_personal_data or request.GET.keys() & PERSON_PARAMETERS):
            people = (person for row in shown.result_list for person in people_of(row))
            note_reading(request, str(self.opts.verbose_name_plural), people)
        return response

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if self.get_object(request, unquote(object_id)) is None:
            raise PermissionDenied  # Django would redirect to the start page
        response: HttpResponse = super().history_view(request, object_id, extra_context)
        return self._log_reading(request, response, "history")

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        response: HttpResponse = super().delete_view(request, object_id, extra_context)
        return self._log_reading(request, response, "delete")

    def _log_reading(self, request: HttpRequest, response: HttpResponse, page: str) -> HttpResponse:
        row = getattr(response, "context_data", {}).get("object")
        if row is not None:
            note_reading(request, f"{self.opts.verbose_name}: {page}", people_of(row))
        return response

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponseBase:
        """Show the row's own page if there is one, or Django's form."""
        row = self.get_object(request, unquote(object_id)) if self.change_page else None
        if self.change_page and row is not None:
            return self.change_page.as_view(admin=self, row=row)(request)
        response: HttpResponse = super().change_view(request, object_id, form_url, extra_context)
        return response

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        row = self.get_object(request, object_id) if object_id else None
        context = (extra_context or {}) | (self._form_context(request, row) if row else {})
        response: HttpResponse = super().changeform_view(request, object_id, form_url, context)
        return response

    def _form_context(self, request: HttpRequest, row: Model) -> dict[str, Any]:
        page = self.form_page(admin=self, row=row)
        page.setup(request)
        page.note_reading()
        return page.context()


class ReadOnlyAdmin(PageAdmin):
    """A list whose rows can't be edited."""

    may_add = may_change = may_delete = False
    steer_permission = ""  # the permission for the actions; by default the permission to change rows

    def has_steer_permission(self, request: HttpRequest) -> bool:
        own = f"{self.opts.app_label}.change_{self.opts.model_name}"
        return request.user.has_perm(self.steer_permission or own)


class RequestedAdmin(ReadOnlyAdmin):
    """Base class of admins for rows that an actor requested. `by` names the actor."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        named: QuerySet[Any] = with_key_names(request, super().get_queryset(request), "requested_by")
        return named

    @admin.display(description="Requested by", ordering="requested_by")
    def by(self, row: Any) -> str:
        return named_actor(row.requested_by, row.key_name)


class LogAdmin(ReadOnlyAdmin):
    """An append-only table, newest rows first. Its pages are neither counted nor sortable."""

    paginator = InfinitePaginator
    sortable_by = ()
    list_disable_select_all = True


class NewestValuesFilter(admin.AllValuesFieldListFilter):
    """Offers the values of the newest thousand rows, because finding all values would scan the table."""

    ROWS = 1_000

    def __init__(
        self, field: Any, request: HttpRequest, params: Any, model: Any, model_admin: Any, field_path: str
    ) -> None:
        super().__init__(field, request, params, model, model_admin, field_path)
        newest = self.rows(model).order_by(*model_admin.ordering).values_list(field_path, flat=True)
        self.lookup_choices: Any = sorted({value for value in newest[: self.ROWS] if value})

    def rows(self, model: Any) -> QuerySet[Any]:
        rows: QuerySet[Any] = model._default_manager.all()
        return rows


def time_cell(at: datetime | None) -> str:
    return format_html('<span class="rem-op-time">{}</span>', date_format(at, "Y-m-d H:i:s")) if at else "–"


class DaysFilter(RangeDateFilter):  # type: ignore[misc]
    """Filters rows by a range of days, including the first and the last day. Uses an index."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        first, last = (self._day(end) for end in ("from", "to"))
        if first:
            queryset = queryset.filter(**{f"{self.field_path}__gte": make_aware(datetime.combine(first, time.min))})
        if last:
            queryset = queryset.filter(**{f"{self.field_path}__lte": make_aware(datetime.combine(last, time.max))})
        return queryset

    def _day(self, end: str) -> date | None:
        """Return the start or end of the range, or None if the text is blank or not a date."""
        day: date | None = parse_date_str(str(self.used_parameters.get(f"{self.parameter_name}_{end}", "")))
        return day


def prefix_search(queryset: QuerySet[Any], term: str, *fields: str) -> QuerySet[Any]:
    """Return rows where one of the fields starts with the term. Blank returns all rows. Uses one index per field."""
    term = term.strip().replace("\0", "")
    if not term:
        return queryset
    return matching_any(queryset, *(queryset.filter(**{f"{field}__startswith": term}) for field in fields))


def matching_any(queryset: QuerySet[Any], *queries: QuerySet[Any]) -> QuerySet[Any]:
    """Return the rows found by any of several queries, limited to the newest `MAX_FOUND` rows of each query.

    Separate queries use indexes. A single query with OR across tables would read all rows.
    """
    first, *others = (way.order_by("-pk").values("pk")[:MAX_FOUND] for way in queries)
    return queryset.filter(pk__in=first.union(*others, all=True) if others else first)


class ExactFilter(TextFilter):  # type: ignore[misc]
    """Filters rows whose `lookup` equals the entered text."""

    lookup = ""

    def lookup_value(self, text: str) -> Any:
        return text

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        text = (self.value() or "").strip()
        return queryset.filter(**{self.lookup: self.lookup_value(text)}) if text else queryset


class TagFilter(ExactFilter):
    def lookup_value(self, text: str) -> list[str]:
        return [text]


class UserFilter(ExactFilter):
    title, parameter_name, lookup = "user_id", "user_id", "user__user_id"


# --- names of actors; jobs and events store only the prefix of an API key ---


def with_key_names(request: HttpRequest, rows: QuerySet[Any], column: str) -> Any:
    """Annotate rows with `key_name`, the name of the API key in an actor column.

    Blank if the operator may not see keys.
    """
    if not may_see(request, ApiKey):
        return rows.annotate(key_name=Value(""))
    named = ApiKey.objects.filter(prefix=Substr(OuterRef(column), len(KEY_ACTOR) + 1)).values("name")
    return rows.annotate(key_name=Subquery(named[:1]))


def name_of(request: HttpRequest, actor: str) -> str:
    """Return an actor's name for display. For an API key, return the key's name if the operator may see keys."""
    if not actor.startswith(KEY_ACTOR) or not may_see(request, ApiKey):
        return named_actor(actor)
    return named_actor(
        actor, ApiKey.objects.filter(prefix=actor.removeprefix(KEY_ACTOR)).values_list("name", flat=True).first()
    )
