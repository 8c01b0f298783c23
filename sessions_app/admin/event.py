"""The event log in the admin, with links to the rows that events refer to."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from django.contrib import admin
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.text import Truncator

from sessions_app.admin.applications import APPLICATION_NAME
from sessions_app.admin.base import LogAdmin, NewestValuesFilter, time_cell, with_key_names
from sessions_app.admin.links import column
from sessions_app.admin.views import FormPage
from sessions_app.models import Event, Session, UserProfile
from sessions_app.models.event import USER_READ, named_actor
from sessions_app.people.erase import ERASED_EVENT

FOUND_BY_NAME = 50
# Functions that format values of payloads for pages, keyed by the name of the value. Other apps add theirs.
FORMATTERS: dict[str, Callable[[str], str]] = {}


def has_receipt(event: Event) -> bool:
    """Return whether this is an erasure with a receipt. Earlier releases recorded no receipts."""
    return event.type == ERASED_EVENT and "left" in event.payload


class EventForm(FormPage[Event]):
    """The page of an event. For an erasure, it shows the receipt."""

    after = "operator/events/receipt.html"

    def context(self) -> dict[str, Any]:
        event = self.row
        if not has_receipt(event):
            return {}
        rows, left = event.payload["rows"], event.payload["left"]
        searched = [(kind, rows.get(kind, 0), number) for kind, number in left.items()]
        return {
            "receipt": event.payload,
            "erased_at": event.created_at,
            "erased": sorted((each for each in searched if each[1] or each[2]), key=lambda each: -each[1]),
            "without_rows": [kind for kind, number, remaining in searched if not number and not remaining],
            "erased_rows": sum(rows.values()),
            "left_rows": sum(left.values()),
        }


class ReadingsFilter(admin.SimpleListFilter):
    """Hides the access log unless the operator asks for it, because it would crowd out all other events."""

    title = "access log"
    parameter_name = "readings"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("with", "Included"), ("alone", "Only the access log")]

    def choices(self, changelist: Any) -> Iterator[Any]:
        first, *others = super().choices(changelist)
        yield {**first, "display": "Left out"}
        yield from others

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        if self.value() == "alone":
            return queryset.filter(type=USER_READ)
        is_asked_for = self.value() == "with" or "type" in request.GET
        return queryset if is_asked_for else queryset.exclude(type=USER_READ)


@admin.register(Event)
class EventAdmin(LogAdmin):
    list_display = ("happened_at", "what", "in_short", "person", "session", "who")
    list_filter = (ReadingsFilter, ("type", NewestValuesFilter))
    shows_personal_data = False
    search_fields = ("user_pk",)
    search_help_text = "Start of a user_id"
    ordering = ("-created_at", "-id")
    when_empty = "No events yet. Actions of processes, clients and operators are logged here."
    fields = readonly_fields = ("happened_at", "what", "who", "person", "session", "payload_text")
    form_page = EventForm
    happened_at = column("created_at", "When", time_cell)

    def get_queryset(self, request: HttpRequest) -> Any:
        """Annotate events with the names of existing people and sessions. Events store only their primary keys."""
        queryset: QuerySet[Event] = super().get_queryset(request)
        named: QuerySet[Any] = with_key_names(request, queryset, "actor")
        return named.annotate(
            person_name=Subquery(UserProfile.objects.filter(pk=OuterRef("user_pk")).values("user_id")),
            session_name=Subquery(Session.objects.filter(pk=OuterRef("session_pk")).values("session_id")),
        )

    def of_application(self, application: int) -> Q:
        people = UserProfile.objects.filter(application=application)
        return super().of_application(application) | Q(user_pk__in=people.values("pk"))

    def with_application(self, rows: Any) -> Any:
        """Annotate events with the name of their application, or of their person's application."""
        person = UserProfile.objects.filter(pk=OuterRef("user_pk"))
        return rows.annotate(
            **{APPLICATION_NAME: Coalesce(Subquery(person.values("application__name")), "application__name")}
        )

    def search(self, request: HttpRequest, rows: QuerySet[Event], term: str) -> QuerySet[Event]:
        people = UserProfile.objects.filter(user_id__startswith=term).values_list("pk", flat=True)[:FOUND_BY_NAME]
        return rows.filter(user_pk__in=list(people))

    def get_fields(self, request: HttpRequest, obj: Event | None = None) -> Any:
        """Hide the payload of an erasure, because the receipt shows it."""
        return self.fields[:-1] if obj and has_receipt(obj) else self.fields

    @admin.display(description="Event")
    def what(self, event: Event) -> str:
        return event.type.replace("_", " ")

    @admin.display(description="Details")
    def in_short(self, event: Event) -> str:
        line = Truncator(in_short(event.payload)).chars(160)
        return format_html('<span class="rem-op-cell rem-op-broad">{}</span>', line)

    @admin.display(description="By")
    def who(self, event: Any) -> str:
        kind, _, job_id = event.actor.partition(":")
        if kind != "job":
            return named_actor(event.actor, event.key_name)
        url = reverse("admin:moments_app_job_changelist")
        return format_html('<a class="rem-link rem-op-time" href="{}?q={}">job {}</a>', url, job_id, job_id[:8])

    @admin.display(description="Person")
    def person(self, event: Any) -> str:
        return _link("sessions_app_userprofile", event.user_pk, event.person_name)

    @admin.display(description="Session")
    def session(self, event: Any) -> str:
        return _link("sessions_app_session", event.session_pk, event.session_name)

    @admin.display(description="All details")
    def payload_text(self, event: Event) -> str:
        shown = [(name.replace("_", " "), in_words(_formatted(name, value))) for name, value in event.payload.items()]
        rows = format_html_join("", "<div><dt>{}</dt><dd>{}</dd></div>", shown)
        return format_html('<dl class="rem-facts rem-facts-rows">{}</dl>', rows) if shown else "–"


def in_short(payload: Mapping[str, Any]) -> str:
    """Format a payload in one line. For a longer list, only show the number of items."""
    written = ((name.replace("_", " "), _short_value(_formatted(name, value))) for name, value in payload.items())
    return " · ".join(f"{name}: {value}" for name, value in written)


def _formatted(name: str, value: Any) -> Any:
    return FORMATTERS[name](value) if name in FORMATTERS and isinstance(value, str) else value


def in_words(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, list):
        return ", ".join(map(in_words, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{str(name).replace('_', ' ')} {in_words(inner)}" for name, inner in value.items()) or "none"
    return str(value)


def _short_value(value: Any) -> str:
    return in_words(value) if not isinstance(value, list) or 0 < len(value) <= 3 else str(len(value))


def _link(page: str, pk: int | None, name: str | None) -> str:
    if name is None:
        return "–"
    url = reverse(f"admin:{page}_change", args=[pk])
    return format_html('<a class="rem-link rem-op-cell rem-op-narrow" href="{}">{}</a>', url, name)
