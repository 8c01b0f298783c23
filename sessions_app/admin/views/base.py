"""Base of all pages and actions of the operator.

A list names the views that stand beside it in `PageAdmin.views`. Each has an address below the list's, and the list's
name with its own behind it. Whoever is logged in to the admin gets there; the view says what they need to go on.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.views.generic import View

from sessions_app.admin.reading import note_reading, people_of
from sessions_app.models import Message, Session
from sessions_app.refusals import Refusal

MAX_DIGITS = 18  # of a number in an address: every such number fits a bigint

Row = TypeVar("Row", bound=Model)


def actor_of(request: HttpRequest) -> str:
    """Name the operator as jobs and the log of events do."""
    return f"operator:{request.user.get_username()}"


def number_in(text: str) -> int | None:
    """Read a whole number that an address carries; None where it carries none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS else None


def may_see(request: HttpRequest, model: type[Model]) -> bool:
    """Tell whether the operator may see the rows of a table; turns are seen with their sessions."""
    options = Session._meta if model is Message else model._meta
    return request.user.has_perm(f"{options.app_label}.view_{options.model_name}")


class OperatorView(View):
    """A page or an action.

    Attributes:
        admin: the list that the view stands beside.
        route: the end of its address.
        name: the end of its name.
        permission: what the operator needs: the list's admin has a method `has_…_permission` of this name.
        needs: rights that it takes beside that, because it shows rows of other tables, or much of a person at once.
        is_open: it is there for those who aren't logged in.
    """

    admin: Any = None
    route = ""
    name = ""
    permission = "view"
    needs: ClassVar[Sequence[str]] = ()
    is_open: ClassVar[bool] = False

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Refuse whoever may not, and note whom the page tells of; Django refuses methods that the view lacks."""
        method = str(request.method).lower()
        if method in self.http_method_names and hasattr(self, method) and not self.may_enter():
            raise PermissionDenied
        answer = super().dispatch(request, *args, **kwargs)
        if answer.status_code == 200:
            self.note_reading()
        return answer

    def may_enter(self) -> bool:
        """Tell whether the operator may see the list that the view stands beside, and open the page, or do this."""
        sees_list = bool(self.admin.has_view_permission(self.request))
        return sees_list and self.request.user.has_perms(self.needs) and self.has_permission()

    def has_permission(self) -> bool:
        """Tell whether the operator may open the page, or do this."""
        return bool(getattr(self.admin, f"has_{self.permission}_permission")(self.request))

    def people(self) -> Collection[int]:
        """Return the primary keys of the people whom the page tells of."""
        return ()

    def note_reading(self) -> None:
        """Note that the operator reads of these people."""
        page = f"{self.admin.opts.verbose_name}: {self.name.replace('_', ' ')}"
        note_reading(self.request, page, self.people())

    def seen(self, rows: QuerySet[Row]) -> QuerySet[Row]:
        """Return rows of another table for a page that shows them beside its own; none if the operator may not."""
        return rows if may_see(self.request, rows.model) else rows.none()

    @property
    def actor(self) -> str:
        """The operator's name."""
        return actor_of(self.request)

    def number(self, name: str) -> int | None:
        """Read a whole number from the query of the address; None where there is none."""
        return number_in(self.request.GET.get(name, ""))

    def log(self, row: Model, entry: str, message: str) -> None:
        """Note in a row's history what was done to it, and tell the operator."""
        self.admin.log_change(self.request, row, entry)
        messages.success(self.request, message)

    def attempt(self, row: Model, do: Callable[[], object], *, log: str, message: str, about: str = "") -> None:
        """Do something to a row, log it and say so; or say why it was refused.

        Args:
            row: the row that the log is about.
            do: the change; it may raise a `Refusal`.
            log: the entry in the row's history.
            message: the sentence for the operator.
            about: names the row in a refusal, where the page shows several.
        """
        try:
            do()
        except Refusal as error:
            messages.error(self.request, f"{about}: {error}" if about else str(error))
        else:
            self.log(row, log, message)


class OperatorPage(OperatorView):
    """A whole page with a template of its own.

    Attributes:
        template_name: the page's template.
        title: the page's heading.
    """

    template_name = ""
    title = ""

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        """Show the page."""
        return self.page()

    def page(self, *, status: int = 200, **more: Any) -> HttpResponse:
        """Render the page.

        Args:
            status: the answer's status.
            more: further context for the template.
        """
        shown = self.context() | {"title": self.get_title()} | more
        site = self.admin.admin_site.each_context(self.request)
        return render(self.request, self.template_name, site | shown, status=status)

    def get_title(self) -> str:
        """Name the page."""
        return self.title

    def context(self) -> dict[str, Any]:
        """Collect what the template shows."""
        return {}


class RowView(OperatorView, Generic[Row]):
    """A view of one row, whose key is the `pk` of the address."""

    @cached_property
    def row(self) -> Row:
        """The row of the address."""
        try:
            return get_object_or_404(self.rows(), pk=self.kwargs["pk"])
        except ValueError as error:  # an address may carry any text
            raise Http404 from error

    def rows(self) -> QuerySet[Row]:
        """Return the rows among which the view's row is looked up."""
        rows: QuerySet[Row] = self.admin.get_queryset(self.request)
        return rows

    def people(self) -> Collection[int]:
        """Return the person of the row."""
        return people_of(self.row)


class RowPage(RowView[Row], OperatorPage):
    """A page about one row.

    Attributes:
        has_trail: the way to the row stands above the page, in place of its title.
    """

    has_trail = False

    def page(self, *, status: int = 200, **more: Any) -> HttpResponse:
        """Render the page, below the row's name where it has a trail."""
        trail = {"opts": self.admin.opts, "original": self.row} if self.has_trail else {}
        return super().page(status=status, **trail | more)

    def get_title(self) -> str:
        """Name the page after its row."""
        return str(self.row)


class RowAction(RowView[Row]):
    """A change of one row, asked for by a button."""

    permission = "change"

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """Change the row, and show what came of it."""
        return HttpResponseRedirect(self.change(self.row))

    def change(self, row: Row) -> str:
        """Change a row, log it and say so.

        Returns:
            The address to go on to.
        """
        raise NotImplementedError

    @classmethod
    def change_each(cls, admin: Any, request: HttpRequest, rows: Iterable[Row]) -> None:
        """Change each of the rows that were ticked in a list."""
        view = cls(admin=admin)
        view.setup(request)
        for row in rows:
            view.change(row)


class FormPage(RowView[Row]):
    """Django's form of a row, with templates before and after it; `PageAdmin.form_page` names it.

    Attributes:
        before: the template that stands before the form.
        after: the template that stands after it.
    """

    before: str | None = None
    after: str | None = None

    def context(self) -> dict[str, Any]:
        """Collect what the two templates show."""
        return {}

    def note_reading(self) -> None:
        """Note that the operator reads the row."""
        note_reading(self.request, str(self.admin.opts.verbose_name), self.people())
