"""The lists of sessions, of rolling summaries, of served contexts, and of archives."""

from collections.abc import Callable, Mapping
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import SEARCH_VAR
from django.db.models import Func, QuerySet, TextField, Value
from django.db.models.functions import Coalesce, NullIf
from django.http import Http404, HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from unfold.contrib.filters.admin import FieldTextFilter
from unfold.decorators import display

from moments_app.models import ContextReceipt, Summary
from moments_app.operator.views.context import ContextPreview, ReceiptForm, tokens_by_layer
from moments_app.operator.views.retraction import RetractTurns
from moments_app.operator.views.session import (
    BuildSession,
    CompactSession,
    HoldSession,
    MoreTurns,
    RebuildSession,
    RetrySummary,
    SessionContexts,
    SessionDetails,
    SessionForm,
    SessionJobs,
    SessionMemory,
    SessionSummaries,
    SettleSession,
    SummaryForm,
    Transcript,
)
from moments_app.operator.views.trace import Trace
from sessions_app import lexemes
from sessions_app.admin.base import DaysFilter, PageAdmin, ReadOnlyAdmin, UserFilter, prefix_search
from sessions_app.admin.links import GIST_CHARS, column, highlighted, link_to, name_with_gist, turn_url
from sessions_app.admin.views import actor_of
from sessions_app.models import Archive, Session
from sessions_app.transcript.search import Mention, find_sessions

STUCK = "stuck"


@admin.register(Session)
class SessionAdmin(PageAdmin):
    """Sessions, searched by their names and by their messages."""

    list_display = ("name", "person", "source", "agent_id", "turns", "tokens", "active_at", "state")
    list_filter = (
        "status",
        ("source", FieldTextFilter),
        ("agent_id", FieldTextFilter),
        ("last_activity_at", DaysFilter),
    )
    search_fields = ("session_id",)
    search_help_text = "Start of a session_id or user_id, or words from a turn or title"
    ordering = ("-last_activity_at", "-id")
    when_empty = "No sessions yet. A session appears when an application stores its first message."
    change_page = Transcript
    form_page = SessionForm
    open_lookups = ("user__id__exact",)
    may_add = may_delete = False
    tabs = (
        Transcript,
        SessionSummaries,
        SessionMemory,
        SessionJobs,
        SessionContexts,
        ContextPreview,
        SessionDetails,
    )
    views = (
        *tabs[1:],
        MoreTurns,
        Trace,
        RebuildSession,
        RetractTurns,
        BuildSession,
        CompactSession,
        SettleSession,
        HoldSession,
    )
    readonly_fields = [field.name for field in Session._meta.fields if field.name not in ("title", "legal_hold")]
    fieldsets = (
        (None, {"fields": (("session_id", "user", "agent_id"), ("source", "status", "title"), "legal_hold")}),
        (
            "Raw data",
            {
                "classes": ("collapse",),
                "fields": (
                    ("message_count", "total_tokens", "last_activity_at"),
                    ("live_from_sequence", "live_tokens", "last_moment_message_idx"),
                    ("built_message_count", "built_total_tokens", "created_at"),
                    ("kept_from_sequence", "summarised_sequence", "restored_at"),
                    "metadata",
                ),
            },
        ),
    )

    # --- the list ---

    person = column("user.user_id", "User", ordering="user__user_id")
    turns = column("message_count", "Turns", "{:,}".format, ordering="message_count")
    tokens = column("total_tokens", "Tokens", "{:,}".format, ordering="total_tokens")
    active_at = column("last_activity_at", "Last activity", "{:%Y-%m-%d %H:%M}".format, ordering="last_activity_at")

    @admin.display(description="Session", ordering="session_id")
    def name(self, session: Session) -> str:
        return name_with_gist(session.session_id, getattr(session, "began", ""))

    @display(  # type: ignore[untyped-decorator]
        description="Status", ordering="status", label={"active": "success", "cleared": "info"}
    )
    def state(self, session: Session) -> tuple[str, str]:
        return session.status, session.get_status_display()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Session]:
        queryset: QuerySet[Session] = super().get_queryset(request)
        return queryset.select_related("user").annotate(began=_beginning())

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Session | None:
        """Return the session. Like the tabs, raise `Http404` for an unknown id."""
        session: Session | None = super().get_object(request, object_id, from_field)
        if session is None and object_id.isdecimal():
            raise Http404
        return session

    def get_list_display(self, request: HttpRequest) -> Any:
        """Add a column with the matching turn if there is a search."""
        if not request.GET.get(SEARCH_VAR, "").strip():
            return super().get_list_display(request)
        return ("name", _matching_turn_column(request), "person", "turns", "active_at", "state")

    def search(self, request: HttpRequest, rows: QuerySet[Session], term: str) -> QuerySet[Session]:
        mentions: Mapping[int, Mention | None] = find_sessions(rows, term)
        request.mentions = mentions  # type: ignore[attr-defined]
        return prefix_search(rows, term, "session_id", "user__user_id") | rows.filter(pk__in=list(mentions))

    def save_model(self, request: HttpRequest, obj: Session, form: Any, change: bool) -> None:
        """Save only edited fields, because counters may have changed in the meantime."""
        if "legal_hold" in form.changed_data:
            obj.hold(obj.legal_hold, actor=actor_of(request))
        obj.save(update_fields=form.changed_data)


def _beginning() -> Coalesce:
    """Return an expression for the session's title, or else the start of its first user turn.

    The start is longer than pages show, so they end it with an ellipsis.
    """
    first = Func("user", "pk", Value(3 * GIST_CHARS), function="first_words")
    return Coalesce(NullIf("title", Value("")), first, Value(""), output_field=TextField())


def _matching_turn_column(request: HttpRequest) -> Callable[[Session], str]:
    """Return a list column with the first turn that matches the search."""
    words = lexemes.whole_words(request.GET[SEARCH_VAR])

    @admin.display(description="Matching turn")
    def matching_turn(session: Session) -> str:
        found: Mention | None = getattr(request, "mentions", {}).get(session.pk)
        if found is None:
            return ""
        link = format_html(
            '<a class="rem-link" href="{}">{}</a>', turn_url(session.pk, found.sequence), capfirst(found.name)
        )
        return format_html("<span>{} {}</span>", link, highlighted(found.excerpt, words))

    return matching_turn


class StatusFilter(admin.SimpleListFilter):
    """Filters summaries by status. A summary is stuck if it is in progress but no job is running."""

    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [*Summary.Status.choices, (STUCK, "Stuck (no job is working on it)")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Summary]) -> QuerySet[Summary]:
        if self.value() == STUCK:
            return queryset.filter(pk__in=Summary.objects.stuck())
        return queryset.filter(status=self.value()) if self.value() in Summary.Status.values else queryset


@admin.register(Summary)
class SummaryAdmin(ReadOnlyAdmin):
    """Versions of rolling summaries: their turns, their previous version, and their duration."""

    list_display = ("window", "badge", "session_link", "user_link", "base_link", "sources", "duration", "created_at")
    list_filter = (StatusFilter, UserFilter)
    open_lookups = ("session__id__exact", "user__id__exact")
    ordering = ("-id",)
    when_empty = "No summaries yet. A job writes the first summary of a session after an answer."
    form_page = SummaryForm
    sources = column("source_message_ids", "Sources", len)
    views = (RetrySummary,)

    class Media:
        js = ("operator/walk.js",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Summary]:
        queryset: QuerySet[Summary] = super().get_queryset(request)
        return queryset.select_related("session", "user", "job", "prompt_version__resource", "base")

    def get_fieldsets(self, request: HttpRequest, obj: Summary | None = None) -> list[Any]:
        return []  # the page doesn't use Django's fields

    @admin.display(description="Turns", ordering="end_sequence")
    def window(self, summary: Summary) -> SafeString:
        return name_with_gist(_window(summary), summary.text)

    @admin.display(description="Status")
    def badge(self, summary: Summary) -> SafeString:
        return format_html(
            '<span class="rem-badge rem-badge-{}">{}</span>', summary.status, summary.get_status_display().lower()
        )

    @admin.display(description="Continues")
    def base_link(self, summary: Summary) -> SafeString | str:
        return link_to(summary.base, _window(summary.base)) if summary.base else "–"

    @admin.display(description="Duration")
    def duration(self, summary: Summary) -> SafeString | str:
        milliseconds = summary.generation_time_ms
        return "–" if milliseconds is None else format_html('<span class="rem-nowrap">{} ms</span>', milliseconds)


def _window(summary: Summary) -> str:
    return f"{summary.start_sequence}–{summary.end_sequence}"


@admin.register(ContextReceipt)
class ContextReceiptAdmin(ReadOnlyAdmin):
    """Receipts of contexts: their sizes, by layer."""

    list_display = ("created_at", "session_link", "user_link", "total", "layers", "context_id")
    list_filter = (UserFilter, ("created_at", DaysFilter))
    list_select_related = ("session", "user")
    shows_personal_data = False
    ordering = ("-created_at", "-id")
    when_empty = "No served contexts. A context appears here when an application requests it."
    form_page = ReceiptForm

    def get_fieldsets(self, request: HttpRequest, obj: ContextReceipt | None = None) -> list[Any]:
        return []  # the page doesn't use Django's fields

    @admin.display(description="Tokens")
    def total(self, receipt: ContextReceipt) -> str:
        return f"{sum(tokens_by_layer(receipt).values()):,}"

    @admin.display(description="Layers")
    def layers(self, receipt: ContextReceipt) -> str:
        return ", ".join(f"{name} {tokens}" for name, tokens in tokens_by_layer(receipt).items())


@admin.register(Archive)
class ArchiveAdmin(ReadOnlyAdmin):
    """The archived turns of one session and month, stored in a file."""

    list_display = ("name", "session", "user", "month", "turns", "turn_count", "byte_count")
    shows_personal_data = False
    list_select_related = ("session", "user")
    open_lookups = ("session__id__exact",)
    ordering = ("-id",)
    when_empty = "No archives yet. Retention archives turns that are past their retention period."

    @admin.display(description="Turns")
    def turns(self, archive: Archive) -> str:
        return f"{archive.first_sequence}–{archive.last_sequence}"
