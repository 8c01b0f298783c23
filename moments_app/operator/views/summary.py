"""The page of a summary's version, the chain of a session's versions, and trying one again that failed."""

from collections.abc import Collection
from functools import cached_property
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404

from moments_app.models import Job, Summary
from moments_app.models.summary import PROCESS
from moments_app.operator.pager import first_of
from moments_app.operator.summary_chain import drawing
from moments_app.operator.transcript import entries
from sessions_app.admin.links import change_url, page_url
from sessions_app.admin.reading import people_of
from sessions_app.admin.views.base import FormPage, OperatorPage, OperatorView
from sessions_app.models import Message, Session

SOURCES_SHOWN = 200


class SummaryForm(FormPage[Summary]):
    """A version of a rolling summary: its sources, the version made of it, and whether it can be tried again."""

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
            "failed_job": _failed_job(self.request, summary.session) if has_failed else None,
        }


class SummaryChain(OperatorPage):
    """A session's versions as windows over its turns."""

    route, name = "chain/<int:session_pk>/", "chain"
    template_name = "operator/summaries/chain.html"

    @cached_property
    def session(self) -> Session:
        """The session of the address."""
        return get_object_or_404(Session.objects.select_related("user"), pk=self.kwargs["session_pk"])

    def get_title(self) -> str:
        return f"Summaries of {self.session}"

    def people(self) -> Collection[int]:
        """Return the person whose session it is."""
        return people_of(self.session)

    def context(self) -> dict[str, Any]:
        pk, versions = self.number("before"), Summary.objects.for_session(self.session)
        older_than = None if pk is None else versions.filter(pk=pk).first()
        return {
            "session": self.session,
            "drawing": drawing(self.session, older_than=older_than),
            "is_newest": older_than is None,
            "failed_job": _failed_job(self.request, self.session),
        }


class RetrySummary(OperatorView):
    """Give the job that failed a new set of attempts; it writes another version, over the newest window."""

    route, name = "chain/<int:session_pk>/retry/", "retry"

    def has_permission(self) -> bool:
        return self.request.user.has_perm("moments_app.change_job")

    def post(self, request: HttpRequest, session_pk: int) -> HttpResponse:
        session = get_object_or_404(Session, pk=session_pk)
        job = _failed_job(request, session)
        if job is None:
            messages.error(request, "No job of this session's summary has failed.")
            return HttpResponseRedirect(page_url(Summary, "chain", session.pk))
        self.attempt(job, job.restart, log="Retried.", message=f"{job} is queued again.")
        return HttpResponseRedirect(change_url(job))


def _failed_job(request: HttpRequest, session: Session) -> Job | None:
    """Return the newest job of the session's summary, if it failed and the operator may try it again."""
    if not request.user.has_perm("moments_app.change_job"):
        return None
    newest = Job.objects.filter(session=session, process=PROCESS).newest_first().first()
    return newest if newest and newest.status == Job.Status.FAILED else None
