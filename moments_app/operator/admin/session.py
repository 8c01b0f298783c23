"""The list of sessions, and the form for a session's details."""

from collections.abc import Callable, Mapping
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import SEARCH_VAR
from django.db.models import Func, QuerySet, TextField, Value
from django.db.models.functions import Coalesce, NullIf
from django.http import Http404, HttpRequest
from django.utils.html import format_html
from django.utils.text import capfirst
from unfold.contrib.filters.admin import FieldTextFilter
from unfold.decorators import display

from moments_app.operator.views.context_preview import ContextPreview
from moments_app.operator.views.retraction import RetractTurns
from moments_app.operator.views.session import (
    MoreTurns,
    SessionContexts,
    SessionDetails,
    SessionForm,
    SessionJobs,
    SessionMemory,
    SessionSummaries,
    Transcript,
)
from moments_app.operator.views.session_actions import (
    BuildSession,
    HoldSession,
    RebuildSession,
    RequestDigest,
    SettleSession,
)
from moments_app.operator.views.trace import Trace
from sessions_app import lexemes
from sessions_app.admin.base import DaysFilter, PageAdmin, prefix_search
from sessions_app.admin.links import GIST, titled, turn_url
from sessions_app.admin.marked import marked
from sessions_app.admin.views.base import actor_of
from sessions_app.models import Session
from sessions_app.transcript.search import Mention, find_sessions


@admin.register(Session)
class SessionAdmin(PageAdmin):
    """Sessions, searched by their names and by their messages."""

    list_display = ("name", "person", "source", "agent_id", "turns", "tokens", "active_at", "state")
    applications = ("user__application",)
    list_filter = (
        "status",
        ("source", FieldTextFilter),
        ("agent_id", FieldTextFilter),
        ("last_activity_at", DaysFilter),
    )
    list_filter_submit = True
    search_fields = ("session_id",)
    search_help_text = "Start of a session_id or user_id, or words from a turn or title"
    ordering = ("-last_activity_at", "-id")
    when_empty = "No sessions yet. A session appears when an application stores its first message."
    change_page = Transcript
    form_page = SessionForm
    open_lookups = ("user__id__exact",)
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
        RequestDigest,
        SettleSession,
        HoldSession,
    )
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

    @admin.display(description="Session", ordering="session_id")
    def name(self, session: Session) -> str:
        return titled(session.session_id, getattr(session, "began", ""))

    @admin.display(description="User", ordering="user__user_id")
    def person(self, session: Session) -> str:
        return session.user.user_id

    @admin.display(description="Turns", ordering="message_count")
    def turns(self, session: Session) -> str:
        return f"{session.message_count:,}"

    @admin.display(description="Tokens", ordering="total_tokens")
    def tokens(self, session: Session) -> str:
        return f"{session.total_tokens:,}"

    @admin.display(description="Last activity", ordering="last_activity_at")
    def active_at(self, session: Session) -> str:
        return f"{session.last_activity_at:%Y-%m-%d %H:%M}"

    @display(  # type: ignore[untyped-decorator]
        description="Status", ordering="status", label={"active": "success", "cleared": "info"}
    )
    def state(self, session: Session) -> tuple[str, str]:
        return session.status, session.get_status_display()

    def get_queryset(self, request: HttpRequest) -> QuerySet[Session]:
        queryset: QuerySet[Session] = super().get_queryset(request)
        return queryset.select_related("user").annotate(began=_beginning())

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Session | None:
        """Return a session; raise `Http404` for an unknown id, as its tabs do."""
        session: Session | None = super().get_object(request, object_id, from_field)
        if session is None and object_id.isdecimal():
            raise Http404
        return session

    def get_list_display(self, request: HttpRequest) -> Any:
        """Add a column with the search hits in the messages."""
        if not request.GET.get(SEARCH_VAR, "").strip():
            return super().get_list_display(request)
        return ("name", _said_column(request), "person", "turns", "active_at", "state")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Session], search_term: str
    ) -> tuple[QuerySet[Session], bool]:
        term = search_term.strip().replace("\0", "")
        if not term:
            return queryset, False
        said: Mapping[int, Mention | None] = find_sessions(queryset, term)
        request.said = said  # type: ignore[attr-defined]
        named = prefix_search(queryset, term, "session_id", "user__user_id")
        return named | queryset.filter(pk__in=list(said)), False

    # --- rights ---

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Make all fields except title and legal hold read-only, because they record events."""
        return [field.name for field in Session._meta.fields if field.name not in ("title", "legal_hold")]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Session, form: Any, change: bool) -> None:
        """Save only the edited fields, because counters may have changed since the row was read."""
        if "legal_hold" in form.changed_data:
            obj.hold(obj.legal_hold, actor=actor_of(request))
        obj.save(update_fields=form.changed_data)


def _beginning() -> Coalesce:
    """Return a session's title, or the start of the user's first turn that is still in the transcript."""
    first = Func("user", "pk", Value(2 * GIST), function="first_words")
    return Coalesce(NullIf("title", Value("")), first, Value(""), output_field=TextField())


def _said_column(request: HttpRequest) -> Callable[[Session], str]:
    """Return a list column that shows the first turn with the words of the search."""
    words = lexemes.whole_words(request.GET[SEARCH_VAR])

    @admin.display(description="Matching turn")
    def said(session: Session) -> str:
        found: Mention | None = getattr(request, "said", {}).get(session.pk)
        if found is None:
            return ""
        url = turn_url(session.pk, found.sequence)
        return format_html(
            '<span><a class="rem-link" href="{}">{}</a> {}</span>',
            url,
            capfirst(found.name),
            marked(found.excerpt, words),
        )

    return said
