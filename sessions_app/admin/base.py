"""What the operator's pages have in common."""

from collections.abc import Callable
from datetime import datetime, time, timedelta
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.forms import SimpleArrayField
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.timezone import make_aware
from unfold.admin import ModelAdmin
from unfold.contrib.filters.admin import RangeDateFilter
from unfold.paginator import InfinitePaginator
from unfold.utils import parse_date_str
from unfold.widgets import UnfoldAdminTextareaWidget

from sessions_app.refusals import Refusal

FOUND = 1_000


class LinesField(SimpleArrayField):
    """A list, an item a line: items may have commas."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        widget = UnfoldAdminTextareaWidget(attrs={"rows": 6})
        super().__init__(*args, **kwargs | {"delimiter": "\n", "widget": widget, "help_text": "One a line."})

    def to_python(self, value: Any) -> Any:
        if isinstance(value, str):
            value = "\n".join(line for line in value.splitlines() if line.strip())
        return super().to_python(value)


class PageAdmin(ModelAdmin):  # type: ignore[misc]
    """Lists that stay quick with a million rows: no second count, no query a row."""

    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # a count a choice, each over the whole table
    list_per_page = 50
    compressed_fields = False
    formfield_overrides: ClassVar = {ArrayField: {"form_class": LinesField}}
    warn_unsaved_form = True
    when_empty = ""  # what a list says that has nothing yet

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Named after what it lists; Django's own name is an order: select one to change."""
        if request.method == "POST" and not self.get_actions(request):
            raise PermissionDenied  # Django would say that no action was chosen
        title = {"title": str(self.opts.verbose_name_plural).capitalize()}
        response: HttpResponse = super().changelist_view(request, title | (extra_context or {}))
        return response

    def around(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        """What the templates before and after a row's form show; a page that has some says so."""
        return {}

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        obj = self.get_object(request, object_id) if object_id else None
        context = (extra_context or {}) | (self.around(request, obj) if obj else {})
        response: HttpResponse = super().changeform_view(request, object_id, form_url, context)
        return response

    def attempt(
        self, request: HttpRequest, obj: Model, do: Callable[[], object], *, log: str, told: str, about: str = ""
    ) -> None:
        """Change a row and say so, in its log and in a message; or say in a message why it was refused.

        Args:
            request: of the operator.
            obj: that the log is about.
            do: the change; it may raise a `Refusal`.
            log: what the log says of it.
            told: what the message says of it.
            about: what the refusal is about; blank where the page says that.
        """
        try:
            do()
        except Refusal as error:
            messages.error(request, f"{about}: {error}" if about else str(error))
        else:
            self.log_change(request, obj, log)
            messages.success(request, told)


class ReadOnlyAdmin(PageAdmin):
    """Rows that are looked at and never edited by hand."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class LogAdmin(ReadOnlyAdmin):
    """Rows that only grow in number, newest first: pages of them are turned, neither counted nor sorted otherwise."""

    paginator = InfinitePaginator
    sortable_by = ()
    list_disable_select_all = True


class NewestValuesFilter(admin.AllValuesFieldListFilter):
    """Offers the values that the newest thousand rows have: all there are would take a scan of the table."""

    ROWS = 1_000

    def __init__(
        self, field: Any, request: HttpRequest, params: Any, model: Any, model_admin: Any, field_path: str
    ) -> None:
        super().__init__(field, request, params, model, model_admin, field_path)
        newest = self.rows(model).order_by(*model_admin.ordering).values_list(field_path, flat=True)
        self.lookup_choices: Any = sorted({value for value in newest[: self.ROWS] if value})

    def rows(self, model: Any) -> QuerySet[Any]:
        """Whose values are offered."""
        rows: QuerySet[Any] = model._default_manager.all()
        return rows


def one_line(at: datetime | None) -> str:
    """A time for a column of a list, in one line."""
    return format_html('<span class="rem-op-time">{}</span>', date_format(at, "Y-m-d H:i:s")) if at else "–"


class DaysFilter(RangeDateFilter):  # type: ignore[misc]
    """From one day to another, both included: a stretch of an index."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        first, last = (self._day(end) for end in ("from", "to"))
        if first:
            queryset = queryset.filter(**{f"{self.field_path}__gte": make_aware(first)})
        if last:
            queryset = queryset.filter(**{f"{self.field_path}__lt": make_aware(last + timedelta(days=1))})
        return queryset

    def _day(self, end: str) -> datetime | None:
        """What was chosen; None where it is nothing, or no day."""
        day = parse_date_str(str(self.used_parameters.get(f"{self.parameter_name}_{end}", "")))
        return datetime.combine(day, time()) if day else None


def prefix_search(queryset: QuerySet[Any], term: str, *fields: str) -> QuerySet[Any]:
    """Rows one of whose fields begins with the term: what an index can serve.

    Args:
        queryset: to search in.
        term: as the operator typed it; blank finds everything.
        fields: names as in `filter`.
    """
    term = term.strip().replace("\0", "")
    if not term:
        return queryset
    return found_by(queryset, *(queryset.filter(**{f"{field}__startswith": term}) for field in fields))


def found_by(queryset: QuerySet[Any], *ways: QuerySet[Any]) -> QuerySet[Any]:
    """Rows that one of several ways finds, the newest `FOUND` of each.

    One condition with OR over several tables would read all rows; each way by itself has an index.
    """
    first, *others = (way.order_by("-pk").values("pk")[:FOUND] for way in ways)
    return queryset.filter(pk__in=first.union(*others, all=True) if others else first)
