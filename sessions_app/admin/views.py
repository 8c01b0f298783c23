"""Base classes of the operators' pages and actions.

`PageAdmin.views` contains the views of a list. The URL and the name of a view start with those of the list. Operators
need to be logged in and have the permissions that the view requires.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import cached_property, wraps
from typing import Any, ClassVar, Generic, TypeVar

from django.contrib import messages
from django.contrib.admin import action
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import model_ngettext
from django.contrib.humanize.templatetags.humanize import intcomma
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.template.response import TemplateResponse
from django.utils.text import capfirst
from django.views.generic import View

from sessions_app.admin.access_log import note_reading, people_of
from sessions_app.admin.links import page_url
from sessions_app.models import Message, Session
from sessions_app.refusals import Refusal

MAX_DIGITS = 18  # maximum digits of a number in a URL, so it fits a bigint
MESSAGES_SHOWN = 3  # maximum messages about single rows; for more rows, only their number is shown
REASONS_SHOWN = 3  # maximum reasons shown for skipped rows

Row = TypeVar("Row", bound=Model)


def actor_of(request: HttpRequest) -> str:
    return f"operator:{request.user.get_username()}"


def parse_number(text: str) -> int | None:
    """Parse a whole number from a URL. Return None if it isn't one."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS else None


def without_field(error: Exception | str) -> str:
    """Return an error's message without the leading name of an API field, such as `content: `."""
    return capfirst(re.sub("^[a-z_]+: ", "", str(error)))


def may_see(request: HttpRequest, model: type[Model]) -> bool:
    """Return whether the operator may see a table's rows. Turns need the permission for sessions."""
    options = Session._meta if model is Message else model._meta
    return request.user.has_perm(f"{options.app_label}.view_{options.model_name}")


class OperatorView(View):
    """A page or an action."""

    admin: Any = None  # the list that the view belongs to
    route = ""  # the last part of the URL
    name = ""  # the last part of the URL's name
    permission = "view"  # the list's admin checks it with `has_<permission>_permission`
    needs: ClassVar[Sequence[str]] = ()  # additional permissions, for rows of other tables or much data about a person
    is_open: ClassVar[bool] = False  # whether the view is open to people who aren't logged in
    refusals: Counter[str] | None = None  # an action on several rows counts the reasons of its refusals
    successes: list[str] | None = None  # an action on several rows collects its messages

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Check the permissions, and record whose data the page shows. Django rejects unsupported methods."""
        method = str(request.method).lower()
        if method in self.http_method_names and hasattr(self, method) and not self.may_enter():
            raise PermissionDenied
        answer = super().dispatch(request, *args, **kwargs)
        if answer.status_code == 200:
            self.note_reading()
        return answer

    def may_enter(self) -> bool:
        sees_list = bool(self.admin.has_view_permission(self.request))
        return sees_list and self.request.user.has_perms(self.needs) and self.has_permission()

    def has_permission(self) -> bool:
        return bool(getattr(self.admin, f"has_{self.permission}_permission")(self.request))

    def people(self) -> Collection[int]:
        return ()

    def note_reading(self) -> None:
        page = f"{self.admin.opts.verbose_name}: {self.name.replace('_', ' ')}"
        note_reading(self.request, page, self.people())

    def visible(self, rows: QuerySet[Row]) -> QuerySet[Row]:
        """Return rows of another table to show on this page, or none if the operator may not see them."""
        return rows if may_see(self.request, rows.model) else rows.none()

    @property
    def actor(self) -> str:
        return actor_of(self.request)

    def number(self, name: str) -> int | None:
        return parse_number(self.request.GET.get(name, ""))

    def log(self, row: Model, entry: str, message: str) -> None:
        self.admin.log_change(self.request, row, entry)
        if self.successes is None:
            messages.success(self.request, message)
        else:
            self.successes.append(message)

    def attempt(self, row: Model, do: Callable[[], object], *, log: str, message: str, about: str = "") -> None:
        """Change a row, log the change, and show a message. If `do` raises a `Refusal`, show its reason instead.

        `log` is the entry in the row's history. `about` names the row in an error message, if the next page is a list.
        """
        try:
            do()
        except Refusal as error:
            reason = without_field(error)
            if self.refusals is None:
                messages.error(self.request, f"{about}: {reason}" if about else reason)
            else:
                self.refusals[reason] += 1
        else:
            self.log(row, log, message)


class OperatorPage(OperatorView):
    """A page with its own template."""

    template_name = ""
    title = ""

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        return self.page()

    def page(self, *, status: int = 200, **more: Any) -> HttpResponse:
        shown = self.context() | {"title": self.get_title()} | more
        site = self.admin.admin_site.each_context(self.request)
        return render(self.request, self.template_name, site | shown, status=status)

    def get_title(self) -> str:
        return self.title

    def context(self) -> dict[str, Any]:
        return {}


class RowView(OperatorView, Generic[Row]):
    """A view of one row. The `pk` in the URL is its primary key."""

    @cached_property
    def row(self) -> Row:
        try:
            return get_object_or_404(self.rows(), pk=self.kwargs["pk"])
        except ValueError as error:  # a URL may contain any text
            raise Http404 from error

    def rows(self) -> QuerySet[Row]:
        rows: QuerySet[Row] = self.admin.get_queryset(self.request)
        return rows

    def people(self) -> Collection[int]:
        return people_of(self.row)


class RowPage(RowView[Row], OperatorPage):
    """A page about one row."""

    has_trail = False  # whether breadcrumbs replace the title

    def page(self, *, status: int = 200, **more: Any) -> HttpResponse:
        trail = {"opts": self.admin.opts, "original": self.row} if self.has_trail else {}
        return super().page(status=status, **trail | more)

    def get_title(self) -> str:
        return str(self.row)


class RowAction(RowView[Row]):
    """A change to one row, made by a button."""

    permission = "change"

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        return HttpResponseRedirect(self.change(self.row))

    def change(self, row: Row) -> str:
        """Change a row, log the change, and show a message. Return the URL to redirect to."""
        raise NotImplementedError

    @classmethod
    def change_each(cls, admin: Any, request: HttpRequest, rows: QuerySet[Row]) -> None:
        """Change rows. Show a message for each, or only their number if there are many.

        For skipped rows, show their number and the most frequent reasons.
        """
        refusals, successes = Counter[str](), list[str]()
        view = cls(admin=admin, refusals=refusals, successes=successes)
        view.setup(request)
        for row in rows.order_by("-pk"):
            view.change(row)
        if len(successes) > MESSAGES_SHOWN:
            successes = [f"Changed {intcomma(len(successes))} {model_ngettext(admin.opts, len(successes))}."]
        for message in successes:
            messages.success(request, message)
        if refusals:
            skipped = f"{intcomma(refusals.total())} {model_ngettext(admin.opts, refusals.total())}"
            reasons = [f"{reason} ({intcomma(number)}×)" for reason, number in refusals.most_common(REASONS_SHOWN)]
            more = ["…"] if len(refusals) > REASONS_SHOWN else []
            messages.error(request, " ".join([f"Skipped {skipped}:", *reasons, *more]))

    @classmethod
    def for_selected(cls, description: str, *, button: str = "", warning: str = "") -> Any:
        """Return a list's action that changes the selected rows. If `button` is set, it asks for confirmation."""

        @action(description=description, permissions=[cls.permission])
        def change(admin: Any, request: HttpRequest, rows: QuerySet[Any]) -> None:
            cls.change_each(admin, request, rows)

        return confirm_first(warning, button=button)(change) if button else change


class FormPage(RowView[Row]):
    """Django's form for a row, with templates before and after it. Set as `PageAdmin.form_page`."""

    before: str | None = None
    after: str | None = None

    def context(self) -> dict[str, Any]:
        return {}

    def note_reading(self) -> None:
        note_reading(self.request, str(self.admin.opts.verbose_name), self.people())


class FirstTab(RowView[Row]):
    """The tab that replaces Django's form. The form itself is on the details tab, but is submitted to this URL."""

    name = "change"

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        form: HttpResponse = self.admin.changeform_view(request, str(self.row.pk))
        return form


class DetailsTab(RowView[Row]):
    """Shows the fields that the operator may see and edit, in Django's form."""

    route, name, tab = "<int:pk>/details/", "details", "Details"

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        form_url = page_url(type(self.row), "change", self.row.pk)
        form: HttpResponse = self.admin.changeform_view(request, str(self.row.pk), form_url)
        return form

    post = get  # a browser script sends the form to the URL of the row


def tabs_of(admin: Any, request: HttpRequest, row: Model, current: str, query: str = "") -> list[dict[str, Any]]:
    """Return the tabs that this operator may open. The current one is marked."""
    return [
        {"title": view.tab, "url": page_url(type(row), view.name, row.pk) + query, "is_current": view.name == current}
        for view in admin.tabs
        if request.user.has_perms(view.needs)
    ]


def first_of(rows: QuerySet[Row], size: int) -> tuple[list[Row], Row | None]:
    """Return at most `size` rows, and the last of them if other rows follow, otherwise None."""
    found = list(rows[: size + 1])
    return found[:size], found[size - 1] if len(found) > size else None


# --- actions of lists that ask for confirmation before they change the selected rows ---

Action = Callable[[Any, HttpRequest, QuerySet[Any]], HttpResponse | None]
ROWS_SHOWN = 20  # the page lists this many rows, and shows only the number of the others
REPEATED_FIELDS = ("action", "select_across", ACTION_CHECKBOX_NAME)  # form fields to submit again after confirmation


def confirm_first(warning: str, *, button: str) -> Callable[[Action], Action]:
    """Return a decorator for admin actions. It adds a confirmation page with this warning and button."""

    def decorate(action: Action) -> Action:
        @wraps(action)
        def asked(admin: Any, request: HttpRequest, rows: QuerySet[Any]) -> HttpResponse | None:
            if "sure" in request.POST:
                return action(admin, request, rows)
            count = rows.count()
            context = admin.admin_site.each_context(request) | {
                "title": button,
                "opts": admin.opts,
                "warning": warning,
                "button": button,
                "count": count,
                "rows": rows[:ROWS_SHOWN],
                "more": max(count - ROWS_SHOWN, 0),
                "again": [(name, value) for name in REPEATED_FIELDS for value in request.POST.getlist(name)],
            }
            return TemplateResponse(request, "operator/ask_first.html", context)

        return asked

    return decorate
