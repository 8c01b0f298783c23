"""Sessions with their transcript."""

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_POST

from moments_app.admin.context_preview import previewed
from moments_app.admin.retraction import RetractionForm
from moments_app.admin.retraction import previewed as previewed_retraction
from moments_app.admin.transcript import entries
from moments_app.models import Job
from moments_app.processes import build_moments
from moments_app.processes.retract import retract
from sessions_app.admin.base import PageAdmin, prefix_search
from sessions_app.models import Session
from sessions_app.processes.load import page_of_messages

PAGE = 100
BIGINT_MAX = 2**62


@admin.register(Session)
class SessionAdmin(PageAdmin):
    """A conversation: its counters, its transcript with boundaries and moments, and building."""

    list_display = (
        "session_id",
        "user",
        "source",
        "agent_id",
        "message_count",
        "total_tokens",
        "last_activity_at",
        "status",
    )
    list_filter = ("status", "source")
    list_select_related = ("user",)
    search_fields = ("session_id",)
    search_help_text = "The beginning of a session_id or user_id"
    ordering = ("-last_activity_at", "-id")
    change_form_outer_after_template = "admin/session_transcript.html"
    fieldsets = (
        (None, {"fields": (("session_id", "user", "agent_id"), ("source", "status", "title"), "legal_hold")}),
        (
            "Counters",
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

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Everything but title and legal hold: the rest is what happened."""
        return [field.name for field in Session._meta.fields if field.name not in ("title", "legal_hold")]

    def save_model(self, request: HttpRequest, obj: Session, form: Any, change: bool) -> None:
        """Saves what was edited and nothing else: counters may have moved since the row was read."""
        if "legal_hold" in form.changed_data:
            obj.hold(obj.legal_hold, actor=f"operator:{request.user.get_username()}")
        obj.save(update_fields=form.changed_data)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Session], search_term: str
    ) -> tuple[QuerySet[Session], bool]:
        return prefix_search(queryset, search_term, "session_id", "user__user_id"), False

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return lookup == "user__id__exact" or super().lookup_allowed(lookup, value, request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("<path:pk>/build/", view(self.build), name="sessions_app_session_build"),
            path("<path:pk>/retract/", view(self.retract), name="sessions_app_session_retract"),
            path("<path:pk>/context/", view(self.context), name="sessions_app_session_context"),
            *super().get_urls(),
        ]

    def around(self, request: HttpRequest, obj: Session) -> dict[str, Any]:
        """A page of the transcript: the newest turns, or those before or after the sequence asked for."""
        after, before = _number(request, "after"), _number(request, "before")
        if after is None and before is None:
            before = BIGINT_MAX
        page = page_of_messages(obj, PAGE, after=after, before=before)
        turns = [message for message in page.messages if message.kind == "turn"]
        first, last = (turns[0].sequence, turns[-1].sequence) if turns else (0, -1)
        return {
            "session": obj,
            "entries": entries(page.messages, live_from=obj.live_from_sequence),
            "first": first,
            "last": last,
            "has_earlier": first > obj.kept_from_sequence,
            "has_later": bool(turns) and last < obj.last_sequence,
            "may_build": self.has_change_permission(request, obj),
            "build_url": reverse("admin:sessions_app_session_build", args=[obj.pk]),
            "may_retract": request.user.has_perm("moments_app.add_retraction"),
            "retract_url": reverse("admin:sessions_app_session_retract", args=[obj.pk]),
            "context_url": reverse("admin:sessions_app_session_context", args=[obj.pk]),
        }

    def context(self, request: HttpRequest, pk: str) -> HttpResponse:
        """What an application would get for this session, layer by layer."""
        session = get_object_or_404(Session.objects.select_related("user"), pk=pk)
        if not self.has_view_permission(request, session):
            raise PermissionDenied
        shown = self.admin_site.each_context(request) | {"title": f"Context of {session}", "session": session}
        return render(request, "admin/context_preview.html", shown | previewed(request, session))

    def retract(self, request: HttpRequest, pk: str) -> HttpResponse:
        """A form, what it would withdraw, and doing it."""
        session = get_object_or_404(Session.objects.select_related("user"), pk=pk)
        if not request.user.has_perm("moments_app.add_retraction"):
            raise PermissionDenied
        form = RetractionForm(request.POST or None)
        shown = self.admin_site.each_context(request) | {"title": f"Retract {session}", "session": session}
        shown |= {"form": form} | (previewed_retraction(form, session) if form.is_valid() else {})
        if "preview" not in shown or request.POST.get("step") != "retract":
            return render(request, "admin/retract.html", shown)
        made = retract(session, **form.cleaned_data, requested_by=f"operator:{request.user}")
        self.log_change(request, session, f"Retraction {made}.")
        messages.success(request, f"{made.result['turns']} turns are retracted; what rests on others is made anew.")
        return HttpResponseRedirect(reverse("admin:moments_app_retraction_change", args=[made.pk]))

    @method_decorator(require_POST)
    def build(self, request: HttpRequest, pk: str) -> HttpResponse:
        """Asks for a forced build."""
        session = get_object_or_404(Session, pk=pk)
        if not self.has_change_permission(request, session):
            raise PermissionDenied
        with transaction.atomic():
            job = Job.objects.request(build_moments.NAME, session, requested_by=f"operator:{request.user}", force=True)
        self.log_change(request, session, "Asked for moments to be built.")
        messages.success(request, f"A build has been asked for: job {job.job_id}.")
        return HttpResponseRedirect(reverse("admin:moments_app_job_change", args=[job.pk]))


def _number(request: HttpRequest, name: str) -> int | None:
    value = request.GET.get(name, "")
    return int(value) if value.isdecimal() and len(value) < 19 else None
