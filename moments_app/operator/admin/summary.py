"""Rolling summaries: their list, the windows of a session's versions, and what each was made of."""

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.urls import URLPattern, path
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST
from unfold.paginator import InfinitePaginator

from moments_app.models import Job, Summary
from moments_app.models.summary import PROCESS
from moments_app.operator.admin.filters import UserFilter
from moments_app.operator.admin.links import change_url, link_to
from moments_app.operator.admin.summary_chain import drawing
from moments_app.operator.admin.transcript import entries
from sessions_app.admin.base import ReadOnlyAdmin, prefix_search
from sessions_app.models import Message, Session

STUCK = "stuck"
SOURCES_SHOWN = 200


class StatusFilter(admin.SimpleListFilter):
    """By status; stuck are those in the making that nobody is working on."""

    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [*Summary.Status.choices, (STUCK, "Stuck: begun long ago, no job")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Summary]) -> QuerySet[Summary]:
        if self.value() == STUCK:
            return queryset.filter(pk__in=Summary.objects.stuck())
        return queryset.filter(status=self.value()) if self.value() in Summary.Status.values else queryset


@admin.register(Summary)
class SummaryAdmin(ReadOnlyAdmin):
    """Versions of rolling summaries: what they cover, what they carry on, how long they took."""

    list_display = ("window", "status_badge", "session_link", "user_link", "base_link", "sources", "took", "created_at")
    list_filter = (StatusFilter, UserFilter)
    list_filter_submit = True
    paginator = InfinitePaginator
    search_fields = ("session__session_id",)
    search_help_text = "The beginning of a session_id or user_id"
    ordering = ("-id",)
    change_form_outer_before_template = "operator/summaries/summary.html"

    class Media:
        js = ("moments_app/walk.js",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Summary]:
        named: QuerySet[Summary] = super().get_queryset(request)
        return named.select_related("session", "user", "job", "prompt_version__resource", "base")

    def get_fieldsets(self, request: HttpRequest, obj: Summary | None = None) -> list[Any]:
        return []  # the page shows the row in its own way

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Summary], search_term: str
    ) -> tuple[QuerySet[Summary], bool]:
        return prefix_search(queryset, search_term, "session__session_id", "user__user_id"), False

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return lookup in ("session__id__exact", "user__id__exact") or super().lookup_allowed(lookup, value, request)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("chain/<int:session_pk>/", view(self.chain), name="moments_app_summary_chain"),
            path("chain/<int:session_pk>/retry/", view(self.retry), name="moments_app_summary_retry"),
            *super().get_urls(),
        ]

    def around(self, request: HttpRequest, obj: Summary) -> dict[str, Any]:
        """Its sources, the version made of it, and whether it can be tried again."""
        window = (obj.start_sequence, obj.end_sequence)
        turns = Message.objects.turns().filter(session=obj.session, user_id=obj.user_id, sequence__range=window)
        rows = list(turns.filter(pk__in=obj.source_message_ids).in_order()[: SOURCES_SHOWN + 1])
        return {
            "summary": obj,
            "next": obj.successors.defer("text", "facts").order_by("-id").first(),
            "is_stuck": Summary.objects.stuck().filter(pk=obj.pk).exists(),
            "entries": entries(rows[:SOURCES_SHOWN]),
            "has_more_turns": len(rows) > SOURCES_SHOWN,
            "failed_job": self._failed_job(request, obj.session) if obj.status == Summary.Status.FAILED else None,
        }

    def chain(self, request: HttpRequest, session_pk: int) -> HttpResponse:
        """A session's versions as windows over its turns."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        session = get_object_or_404(Session.objects.select_related("user"), pk=session_pk)
        before = request.GET.get("before", "")
        is_key = before.isdecimal() and len(before) < 19
        older_than = Summary.objects.for_session(session).filter(pk=before).first() if is_key else None
        context = self.admin_site.each_context(request) | {
            "title": f"Summaries of {session}",
            "session": session,
            "drawing": drawing(session, older_than=older_than),
            "is_newest": older_than is None,
            "failed_job": self._failed_job(request, session),
        }
        return render(request, "operator/summaries/chain.html", context)

    @method_decorator(require_POST)
    def retry(self, request: HttpRequest, session_pk: int) -> HttpResponse:
        """Gives the job that failed a new set of attempts; it writes another version, over the newest window."""
        if not request.user.has_perm("moments_app.change_job"):
            raise PermissionDenied
        session = get_object_or_404(Session, pk=session_pk)
        job = self._failed_job(request, session)
        if job is None:
            messages.error(request, "No job of this session's summary has failed.")
            return HttpResponseRedirect(request.path.removesuffix("retry/"))
        self.attempt(request, job, job.restart, log="Retried.", told=f"{job} is queued again.")
        return HttpResponseRedirect(change_url(job))

    def _failed_job(self, request: HttpRequest, session: Session) -> Job | None:
        """The newest job of the session's summary, if it failed and the operator may try it again."""
        if not request.user.has_perm("moments_app.change_job"):
            return None
        newest = Job.objects.filter(session=session, process=PROCESS).newest_first().first()
        return newest if newest and newest.status == Job.Status.FAILED else None

    @admin.display(description="Window", ordering="end_sequence")
    def window(self, summary: Summary) -> str:
        return f"{summary.start_sequence}–{summary.end_sequence}"

    @admin.display(description="Status")
    def status_badge(self, summary: Summary) -> SafeString:
        return format_html('<span class="rem-stage rem-stage-{}">{}</span>', summary.status, summary.status)

    @admin.display(description="Session")
    def session_link(self, summary: Summary) -> SafeString | str:
        return link_to(summary.session)

    @admin.display(description="User")
    def user_link(self, summary: Summary) -> SafeString | str:
        return link_to(summary.user)

    @admin.display(description="Carries on")
    def base_link(self, summary: Summary) -> SafeString | str:
        return link_to(summary.base, self.window(summary.base)) if summary.base else "–"

    @admin.display(description="Sources")
    def sources(self, summary: Summary) -> int:
        return len(summary.source_message_ids)

    @admin.display(description="Took")
    def took(self, summary: Summary) -> SafeString | str:
        milliseconds = summary.generation_time_ms
        return "–" if milliseconds is None else format_html('<span class="rem-nowrap">{} ms</span>', milliseconds)
