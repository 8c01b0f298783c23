"""Sessions: finding one, its transcript and what was made of it, and the work that an operator asks for."""

from collections.abc import Callable, Mapping
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.views.main import SEARCH_VAR
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.views.decorators.http import require_POST
from unfold.contrib.filters.admin import FieldTextFilter
from unfold.decorators import display

from moments_app.jobs.process import CannotRun
from moments_app.models import Job
from moments_app.moments import build as build_moments
from moments_app.moments import rebuild as rebuild_moments
from moments_app.operator.admin import session_tabs
from moments_app.operator.admin.context_preview import previewed
from moments_app.operator.admin.retraction import form_of, previewed_retraction
from moments_app.provenance.derived import calls_for
from moments_app.provenance.retract import retract
from moments_app.sessions import digest as digest_session
from moments_app.sessions import settle
from sessions_app.admin.base import DaysFilter, PageAdmin, prefix_search
from sessions_app.models import Session
from sessions_app.transcript.search import Mention, find_sessions


class BuildForm(forms.Form):
    """How a build is asked for."""

    lag = forms.IntegerField(min_value=0, max_value=1_000_000, required=False)


@admin.register(Session)
class SessionAdmin(PageAdmin):
    """A conversation: its transcript with boundaries and moments, what was made of it, and building."""

    list_display = ("name", "person", "source", "agent_id", "turns", "tokens", "active_at", "state")
    list_filter = (
        "status",
        ("source", FieldTextFilter),
        ("agent_id", FieldTextFilter),
        ("last_activity_at", DaysFilter),
    )
    list_filter_submit = True
    list_select_related = ("user",)
    search_fields = ("session_id",)
    search_help_text = "The beginning of a session_id or user_id, or words that were said or stand in a title"
    ordering = ("-last_activity_at", "-id")
    change_form_outer_before_template = "admin/session_head.html"
    fieldsets = (
        (None, {"fields": (("session_id", "user", "agent_id"), ("source", "status", "title"), "legal_hold")}),
        (
            "Counters",
            {
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
        if not session.title:
            return session.session_id
        return format_html('<span>{}<br><span class="rem-meta">{}</span></span>', session.session_id, session.title)

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

    def get_list_display(self, request: HttpRequest) -> Any:
        """With words that were searched for, where they were said as well."""
        if not request.GET.get(SEARCH_VAR, "").strip():
            return self.list_display
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

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return lookup == "user__id__exact" or super().lookup_allowed(lookup, value, request)

    # --- rights ---

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Everything but title and legal hold: the rest is what happened."""
        return [field.name for field in Session._meta.fields if field.name not in ("title", "legal_hold")]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    # --- pages ---

    def get_urls(self) -> list[URLPattern]:
        pages = {tab.name: getattr(self, tab.name) for tab in session_tabs.TABS if tab.name != "change"}
        pages |= {"turns": self.more_turns, "rebuild": self.rebuild, "retract": self.retract}
        pages |= {"build": self.build, "digest": self.digest, "settle": self.settle, "hold": self.hold}
        view = self.admin_site.admin_view
        return [
            *(
                path(f"<int:pk>/{name}/", view(page), name=f"sessions_app_session_{name}")
                for name, page in pages.items()
            ),
            *super().get_urls(),
        ]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The transcript. What is posted here is the form of the details."""
        if request.method == "POST" or not object_id.isdecimal():
            form: HttpResponse = super().change_view(request, object_id, form_url, extra_context)
            return form
        session = self._session(request, int(object_id))
        asked = session_tabs.number(request, "jump")
        if asked is not None:
            return HttpResponseRedirect(_place(session, asked))
        return self._page(request, session, "change", "transcript", session_tabs.transcript(request, session))

    def more_turns(self, request: HttpRequest, pk: int) -> HttpResponse:
        """More of the transcript, to stand before or after what is shown: a part of a page."""
        session = self._session(request, pk)
        shown = session_tabs.transcript(request, session) | self._rights(request, session) | {"session": session}
        hidden = "earlier" if "after" in request.GET else "later"
        return render(request, "admin/session_turns.html", shown | {hidden: False})

    def details(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Every column of the session, and the form for the few that may be edited."""
        self._session(request, pk)
        form_url = reverse("admin:sessions_app_session_change", args=[pk])
        return self.changeform_view(request, str(pk), form_url)

    def around(self, request: HttpRequest, obj: Session) -> dict[str, Any]:
        """The head of the page, above the form."""
        return self._head(request, obj, "details")

    def summaries(self, request: HttpRequest, pk: int) -> HttpResponse:
        """The chain of its rolling summary."""
        return self._tab(request, pk, "summaries", session_tabs.summaries)

    def memory(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Its streams, and what was formed from it."""
        return self._tab(request, pk, "memory", session_tabs.memory)

    def jobs(self, request: HttpRequest, pk: int) -> HttpResponse:
        """The work that was done for it, and is to be."""
        return self._tab(request, pk, "jobs", session_tabs.jobs)

    def contexts(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Receipts of what applications got for it."""
        return self._tab(request, pk, "contexts", session_tabs.contexts)

    def context(self, request: HttpRequest, pk: int) -> HttpResponse:
        """What an application would get for this session, layer by layer."""
        return self._tab(request, pk, "context", previewed)

    # --- what an operator asks for ---

    @method_decorator(require_POST)
    def build(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Asks for a forced build, with a lag where one is given."""
        session = self._to_change(request, pk)
        form = BuildForm(request.POST)
        if not form.is_valid():
            messages.error(request, f"Turns to keep live: {' '.join(map(str, form['lag'].errors))}")
            return HttpResponseRedirect(_place(session))
        params = {name: value for name, value in form.cleaned_data.items() if value is not None}
        return self._ask(request, session, build_moments.NAME, "Asked for moments to be built", params)

    @method_decorator(require_POST)
    def digest(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Asks for a digest of the live window."""
        return self._ask(request, self._to_change(request, pk), digest_session.NAME, "Asked for a digest")

    @method_decorator(require_POST)
    def settle(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Asks for the session to be settled; it is when it is quiet."""
        return self._ask(request, self._to_change(request, pk), settle.NAME, "Asked for the session to be settled")

    @method_decorator(require_POST)
    def hold(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Puts the session under legal hold, or ends it."""
        session = self._to_change(request, pk)
        held = bool(request.POST.get("held"))
        if held != session.legal_hold:
            session.hold(held, actor=_actor(request))
            self.log_change(request, session, "Put under legal hold." if held else "Released from legal hold.")
        messages.success(request, "The session is under legal hold." if held else "The session is not held any more.")
        return HttpResponseRedirect(_place(session))

    def rebuild(self, request: HttpRequest, pk: int) -> HttpResponse:
        """What would be made anew and what it costs; and asking for it."""
        session = self._to_change(request, pk)
        if request.method == "POST":
            return self._ask(request, session, rebuild_moments.NAME, "Asked for the moments to be made anew")
        return self._page(request, session, "", "rebuild", _rebuilt(session))

    def retract(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Which turns, what would be withdrawn with them, and doing it."""
        session = self._session(request, pk)
        if not request.user.has_perm("moments_app.add_retraction"):
            raise PermissionDenied
        form = form_of(request)
        shown = {"form": form} | previewed_retraction(form, session)
        if request.method != "POST" or not form.is_valid() or "preview" not in shown:
            return self._page(request, session, "", "retract", shown)
        made = retract(session, **form.cleaned_data, requested_by=_actor(request))
        self.log_change(request, session, f"Retraction {made}.")
        messages.success(request, f"{made.result['turns']} turns are retracted; what rests on others is made anew.")
        return HttpResponseRedirect(reverse("admin:moments_app_retraction_change", args=[made.pk]))

    def save_model(self, request: HttpRequest, obj: Session, form: Any, change: bool) -> None:
        """Saves what was edited and nothing else: counters may have moved since the row was read."""
        if "legal_hold" in form.changed_data:
            obj.hold(obj.legal_hold, actor=_actor(request))
        obj.save(update_fields=form.changed_data)

    # --- what the pages have in common ---

    def _session(self, request: HttpRequest, pk: int) -> Session:
        session = get_object_or_404(Session.objects.select_related("user"), pk=pk)
        if not self.has_view_permission(request, session):
            raise PermissionDenied
        return session

    def _to_change(self, request: HttpRequest, pk: int) -> Session:
        session = self._session(request, pk)
        if not self.has_change_permission(request, session):
            raise PermissionDenied
        return session

    def _ask(
        self, request: HttpRequest, session: Session, process: str, told: str, params: dict[str, Any] | None = None
    ) -> HttpResponse:
        with transaction.atomic():
            job = Job.objects.request(process, session, requested_by=_actor(request), force=True, params=params)
        self.log_change(request, session, f"{told}: job {job.job_id}.")
        messages.success(request, f"{told}: job {job.job_id}.")
        return HttpResponseRedirect(reverse("admin:moments_app_job_change", args=[job.pk]))

    def _tab(
        self, request: HttpRequest, pk: int, name: str, shown: Callable[[HttpRequest, Session], dict[str, Any]]
    ) -> HttpResponse:
        session = self._session(request, pk)
        tab = next(tab for tab in session_tabs.TABS if tab.name == name)
        if not request.user.has_perm(tab.permission):
            raise PermissionDenied
        return self._page(request, session, name, name, shown(request, session))

    def _page(
        self, request: HttpRequest, session: Session, tab: str, template: str, shown: Mapping[str, Any]
    ) -> HttpResponse:
        context = self.admin_site.each_context(request) | self._head(request, session, tab)
        context |= {"title": str(session), "opts": self.opts, "original": session}
        return render(request, f"admin/session_{template}.html", context | shown)

    def _head(self, request: HttpRequest, session: Session, tab: str) -> dict[str, Any]:
        tabs = session_tabs.tabs_of(request, session, tab)
        return {"session": session, "tabs": tabs} | self._rights(request, session)

    def _rights(self, request: HttpRequest, session: Session) -> dict[str, Any]:
        may_retract = request.user.has_perm("moments_app.add_retraction")
        return {"may_change": self.has_change_permission(request, session), "may_retract": may_retract}


def _rebuilt(session: Session) -> dict[str, Any]:
    """What a rebuild would take on, and about what it would cost."""
    moments = session.moments.filter(user_id=session.user_id, first_sequence__gte=session.kept_from_sequence)
    turns = session.messages.turns().filter(user_id=session.user_id, moment__isnull=False)
    shown = {
        "moments": list(moments.defer("search_vector").order_by("first_sequence")[: session_tabs.TURNS]),
        "moment_count": moments.count(),
        "engine_calls": calls_for(turns),
    }
    try:
        return shown | {"prompt": build_moments.prompt()}
    except CannotRun as error:
        return shown | {"problem": str(error)}


def _said_column(request: HttpRequest) -> Callable[[Session], str]:
    """A column of the list: the newest turn with the words that were searched for."""

    @admin.display(description="Said")
    def said(session: Session) -> str:
        found: Mention | None = getattr(request, "said", {}).get(session.pk)
        if found is None:
            return ""
        told = (_place(session, found.sequence), found.sequence, found.excerpt)
        return format_html('<span><a class="rem-link" href="{}">Turn {}</a> {}</span>', *told)

    return said


def _place(session: Session, sequence: int | None = None) -> str:
    """Address of a session's transcript, or of a turn in it."""
    url = reverse("admin:sessions_app_session_change", args=[session.pk])
    return url if sequence is None else f"{url}?at={sequence}#turn-{sequence}"


def _actor(request: HttpRequest) -> str:
    return f"operator:{request.user.get_username()}"
