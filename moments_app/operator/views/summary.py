"""The page of a summary version, and the retry of a failed one."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404

from moments_app.models import Job, Summary
from moments_app.models.summary import PROCESS
from moments_app.operator.transcript import entries
from sessions_app.admin.links import change_url, page_url
from sessions_app.admin.views.base import FormPage, OperatorView, first_of
from sessions_app.models import Message, Session

SOURCES_SHOWN = 200


class SummaryForm(FormPage[Summary]):
    """A version of a rolling summary: its sources, the next version, and whether it can be retried."""

    before = "operator/summaries/summary.html"

    def context(self) -> dict[str, Any]:
        summary = self.row
        there = Message.objects.filter(session=summary.session, user_id=summary.user_id)
        sources = there.filter(pk__in=summary.source_message_ids).in_order()
        shown, more = first_of(self.seen(sources), SOURCES_SHOWN)
        has_failed = summary.status == Summary.Status.FAILED
        return {
            "summary": summary,
            "next": summary.successors.defer("text", "facts").order_by("-id").first(),
            "is_stuck": Summary.objects.stuck().filter(pk=summary.pk).exists(),
            "entries": entries(self.request, shown),
            "has_more_turns": more is not None,
            "failed_job": failed_job_of(self.request, summary.session) if has_failed else None,
        }


class RetrySummary(OperatorView):
    """Restart the failed job. It writes another version, over the newest window."""

    route, name = "retry/<int:session_pk>/", "retry"

    def has_permission(self) -> bool:
        return self.request.user.has_perm("moments_app.change_job")

    def post(self, request: HttpRequest, session_pk: int) -> HttpResponse:
        session = get_object_or_404(Session, pk=session_pk)
        job = failed_job_of(request, session)
        if job is None:
            messages.error(request, "No job of this session's summary has failed.")
            return HttpResponseRedirect(page_url(session, "summaries", session.pk))
        self.attempt(job, job.restart, log="Retried.", message=f"{job} is queued again.")
        return HttpResponseRedirect(change_url(job))


def failed_job_of(request: HttpRequest, session: Session) -> Job | None:
    """Return the newest summary job of the session if it failed and the operator may retry it."""
    if not request.user.has_perm("moments_app.change_job"):
        return None
    newest = Job.objects.filter(session=session, process=PROCESS).newest_first().first()
    return newest if newest and newest.status == Job.Status.FAILED else None
