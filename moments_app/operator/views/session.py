"""The pages and actions of a session, and the page of a summary.

Each page runs only a few queries, regardless of the size of the session.
"""

from typing import Any

from django import forms
from django.contrib import messages
from django.db import transaction
from django.db.models import F, Min, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render

from moments_app.jobs.process import CannotRun
from moments_app.models import ContextReceipt, Job, MemoryStream, Moment, Summary
from moments_app.models.summary import PROCESS
from moments_app.moments.build import BuildMoments, first_live_sequence
from moments_app.moments.division import builder_prompt
from moments_app.moments.rebuild import RebuildMoments
from moments_app.operator.transcript import Marks, entries
from moments_app.provenance.rebuild import calls_for
from moments_app.sessions.digest import DigestSession
from moments_app.sessions.settle import Settle
from sessions_app.admin.base import with_key_names
from sessions_app.admin.links import change_url, page_url, turn_url
from sessions_app.admin.views import DetailsTab, FirstTab, FormPage, OperatorView, RowAction, RowPage, first_of, tabs_of
from sessions_app.models import Message, Session
from sessions_app.transcript.load import page_of_messages, turn_kinds

TURNS = 100  # turns per page
ROWS = 25
NEWEST = 2**62  # greater than every sequence number
SOURCES_SHOWN = 200


class SessionPage(RowPage[Session]):
    """A page with the header of a session, which has the tabs and the actions."""

    has_trail = True

    def context(self) -> dict[str, Any]:
        return header_context(self.admin, self.request, self.row, self.name)


class SessionTab(SessionPage):
    """A page that is a tab. `tab` is its label."""

    tab = ""

    def newest(self, rows: QuerySet[Any]) -> dict[str, Any]:
        """Read a page of rows, newest first, starting at the row in the URL."""
        before = self.number("before")
        if before is not None:
            rows = rows.filter(pk__lt=before)
        # Sort by an expression. If the rows were sorted by the key itself, the planner might scan the whole table
        # backward to find a session's rows.
        found, last = first_of(rows.order_by(-F("pk")), ROWS)
        return {"rows": found, "older": last.pk if last else None}


class Transcript(FirstTab[Session], SessionTab):
    """The transcript."""

    tab = "Transcript"
    template_name = "operator/sessions/transcript.html"

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        sequence = self.number("jump")
        return self.page() if sequence is None else HttpResponseRedirect(turn_url(self.row.pk, sequence))

    def context(self) -> dict[str, Any]:
        shown = super().context() | self.turns()
        # Archived turns can't be retracted.
        has_stored_turns = self.row.kept_from_sequence <= self.row.last_sequence
        return shown | {"may_select": shown["may_retract"] and bool(shown["entries"]) and has_stored_turns}

    def turns(self) -> dict[str, Any]:
        """Read a page of turns: the newest, or those before, after or around the place in the URL."""
        session, turn, moment = self.row, self.number("at"), self._moment()
        around = moment.first_sequence if moment and turn is None else turn
        page = page_of_messages(session, TURNS, **self._bounds(around), kinds=turn_kinds(session)).messages
        turns = [message for message in page if message.kind != Message.Kind.PARTITION]
        first, last = (turns[0].sequence, turns[-1].sequence) if turns else (0, -1)
        begins_at = self._begins_at()
        lag_from = max(first_live_sequence(session, {}), session.live_from_sequence)
        marks = Marks(session.live_from_sequence, lag_from, turn, moment.pk if moment else None)
        return {
            "entries": entries(self.request, page, marks),
            "first": first,
            "last": last,
            "begins_at": begins_at,
            "earlier": first > begins_at,
            "later": bool(turns) and last < session.last_sequence,
            "found_moment": moment,
        }

    def _begins_at(self) -> int:
        """Return the sequence number of the first readable turn, which may be archived."""
        if not self.row.kept_from_sequence:
            return 0
        archived = self.row.archives.aggregate(first=Min("first_sequence"))["first"]
        return self.row.kept_from_sequence if archived is None else archived

    def _moment(self) -> Moment | None:
        pk = self.number("moment")
        return self.visible(self.row.moments.filter(user_id=self.row.user_id, pk=pk)).first() if pk else None

    def _bounds(self, around: int | None) -> dict[str, int]:
        """Return the arguments of `page_of_messages` for the position in the URL."""
        for name in ("after", "before"):
            if (sequence := self.number(name)) is not None:
                return {name: sequence}
        if around is not None:
            return {"after": min(around, self.row.last_sequence) - TURNS // 2 - 1}
        return {"before": NEWEST}


class MoreTurns(Transcript):
    """The next part of the transcript, to insert before or after the shown turns."""

    route, name = "<int:pk>/turns/", "turns"
    http_method_names = ["get"]

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        hidden = "earlier" if "after" in request.GET else "later"
        shown = {"session": self.row} | rights_of(self.admin, request, self.row) | self.turns()
        return render(request, "operator/sessions/turns.html", shown | {hidden: False})


class SessionSummaries(SessionTab):
    """The current rolling summary and all its versions, newest first."""

    route, name, tab = "<int:pk>/summaries/", "summaries", "Summaries"
    needs = ("moments_app.view_summary",)
    template_name = "operator/sessions/summaries.html"

    def context(self) -> dict[str, Any]:
        versions = Summary.objects.for_session(self.row).select_related("base", "prompt_version")
        current = Summary.objects.latest_completed(self.row)
        shown = {"current": current, "failed_job": failed_job_of(self.request, self.row)}
        return super().context() | self.newest(versions) | shown


class SessionMemory(SessionTab):
    """The streams that the session feeds, and the items formed from it."""

    route, name, tab = "<int:pk>/memory/", "memory", "Memory"
    needs = ("moments_app.view_memoryatom", "moments_app.view_memorystream")
    template_name = "operator/sessions/memory.html"

    def context(self) -> dict[str, Any]:
        seen = MemoryStream.objects.visible_to(self.row).select_related("user", "session")
        streams = list(seen.order_by("stream_type", "id")[:ROWS])
        atoms = self.row.atoms.select_related("stream__user", "stream__session")
        return super().context() | self.newest(atoms) | {"streams": streams}


class SessionJobs(SessionTab):
    """Jobs about the session, newest first."""

    route, name, tab = "<int:pk>/jobs/", "jobs", "Jobs"
    needs = ("moments_app.view_job",)
    template_name = "operator/sessions/jobs.html"

    def context(self) -> dict[str, Any]:
        jobs = Job.objects.filter(user_id=self.row.user_id, session=self.row)
        return super().context() | self.newest(with_key_names(self.request, jobs, "requested_by"))


class SessionContexts(SessionTab):
    """Receipts of the contexts that were served for the session, newest first."""

    route, name, tab = "<int:pk>/contexts/", "contexts", "Served contexts"
    needs = ("moments_app.view_contextreceipt",)
    template_name = "operator/sessions/contexts.html"

    def context(self) -> dict[str, Any]:
        receipts = ContextReceipt.objects.filter(user_id=self.row.user_id, session=self.row)
        return super().context() | self.newest(receipts)


class SessionDetails(DetailsTab[Session], SessionTab):
    """Every column of the session."""


class SessionForm(FormPage[Session]):
    """The header of a session, above the form of its details."""

    before = "operator/sessions/head.html"

    def context(self) -> dict[str, Any]:
        return header_context(self.admin, self.request, self.row, SessionDetails.name)


def header_context(admin: Any, request: HttpRequest, session: Session, tab: str) -> dict[str, Any]:
    tabs = tabs_of(admin, request, session, tab)
    return {"session": session, "tabs": tabs} | rights_of(admin, request, session)


def rights_of(admin: Any, request: HttpRequest, session: Session) -> dict[str, Any]:
    may_retract = request.user.has_perm("moments_app.add_retraction")
    return {"may_change": admin.has_change_permission(request, session), "may_retract": may_retract}


class BuildForm(forms.Form):
    """The lag of a build; blank for the configured one."""

    lag = forms.IntegerField(min_value=0, max_value=1_000_000, required=False)


class JobRequestView(OperatorView):
    """A base for views that queue jobs for a session."""

    def request_job(self, session: Session, process: str, message: str, *, params: dict[str, Any] | None = None) -> str:
        """Queue a job regardless of the thresholds, and return the URL of its page."""
        with transaction.atomic():
            job = Job.objects.request(process, session, requested_by=self.actor, force=True, params=params)
        self.log(session, f"{message}: job {job.job_id}.", f"{message}. The tab Jobs shows its state.")
        return change_url(job)


class BuildSession(JobRequestView, RowAction[Session]):
    """Queue a forced build, optionally with a lag."""

    route, name = "<int:pk>/build/", "build"

    def change(self, session: Session) -> str:
        form = BuildForm(self.request.POST)
        if not form.is_valid():
            messages.error(self.request, f"Turns to keep live: {' '.join(map(str, form['lag'].errors))}")
            return change_url(session)
        params = {name: value for name, value in form.cleaned_data.items() if value is not None}
        return self.request_job(session, BuildMoments.name, "Queued a build of moments", params=params)


class CompactSession(JobRequestView, RowAction[Session]):
    """Queue a digest of the live window."""

    route, name = "<int:pk>/digest/", "digest"

    def change(self, session: Session) -> str:
        return self.request_job(session, DigestSession.name, "Queued a compaction of the session")


class SettleSession(JobRequestView, RowAction[Session]):
    """Queue settling of the session, which runs once the session is quiet."""

    route, name = "<int:pk>/settle/", "settle"

    def change(self, session: Session) -> str:
        message = "Queued a job that updates the memory of the session and then clears it"
        return self.request_job(session, Settle.name, message)


class HoldSession(RowAction[Session]):
    """Put the session under legal hold, or end the hold."""

    route, name = "<int:pk>/hold/", "hold"

    def change(self, session: Session) -> str:
        held = bool(self.request.POST.get("held"))
        if held != session.legal_hold:
            session.hold(held, actor=self.actor)
            entry = "Put under legal hold." if held else "Released from legal hold."
            self.admin.log_change(self.request, session, entry)
        message = "The session is under legal hold." if held else "The session is no longer under legal hold."
        messages.success(self.request, message)
        return change_url(session)


class RebuildSession(JobRequestView, SessionPage):
    """Show what would be rebuilt and its cost, and queue the rebuild."""

    route, name, permission, needs = "<int:pk>/rebuild/", "rebuild", "change", ("moments_app.view_moment",)
    template_name = "operator/sessions/rebuild.html"

    def context(self) -> dict[str, Any]:
        return super().context() | _to_rebuild(self.row)

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        message = "Queued a rebuild of the moments"
        return HttpResponseRedirect(self.request_job(self.row, RebuildMoments.name, message))


def _to_rebuild(session: Session) -> dict[str, Any]:
    """Return what a rebuild would process, and its approximate cost."""
    moments = session.moments.filter(user_id=session.user_id, first_sequence__gte=session.kept_from_sequence)
    turns = session.messages.turns().filter(user_id=session.user_id, moment__isnull=False)
    shown = {
        "moments": list(moments.defer("search_vector").order_by("first_sequence")[:TURNS]),
        "moment_count": moments.count(),
        "engine_calls": calls_for(turns),
    }
    try:
        return shown | {"prompt": builder_prompt(session)}
    except CannotRun as error:
        return shown | {"problem": str(error)}


class SummaryForm(FormPage[Summary]):
    """The page of a version of a rolling summary."""

    before = "operator/summaries/summary.html"

    def context(self) -> dict[str, Any]:
        summary = self.row
        turns = Message.objects.filter(session=summary.session, user_id=summary.user_id)
        sources = turns.filter(pk__in=summary.source_message_ids).in_order()
        shown, more = first_of(self.visible(sources), SOURCES_SHOWN)
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
    """Restart the failed job. It writes another version, which covers the newest window."""

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
