"""The pages of a session: its transcript, and a tab for each kind of derived data.

Each page takes a few queries, however large the session is.
"""

from typing import Any

from django.db.models import F, Min, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render

from moments_app.models import ContextReceipt, Job, MemoryStream, Moment, Summary
from moments_app.moments.build import stays_live_from
from moments_app.operator.pager import first_of
from moments_app.operator.transcript import Marks, entries
from moments_app.operator.views.summary import failed_job_of
from moments_app.operator.views.tabs import DetailsTab, FirstTab, tabs_of
from sessions_app.admin.actors import with_key_names
from sessions_app.admin.links import turn_url
from sessions_app.admin.views.base import FormPage, RowPage
from sessions_app.models import Message, Session
from sessions_app.transcript.load import page_of_messages, turn_kinds

TURNS = 100  # per page
ROWS = 25
NEWEST = 2**62  # greater than every sequence


class SessionPage(RowPage[Session]):
    """A page below the head of a session, which has the tabs and the actions."""

    has_trail = True

    def context(self) -> dict[str, Any]:
        return head_of(self.admin, self.request, self.row, self.name)


class SessionTab(SessionPage):
    """A page that is a tab.

    Attributes:
        tab: the label of the tab.
    """

    tab = ""

    def newest(self, rows: QuerySet[Any]) -> dict[str, Any]:
        """Read a page of rows, newest first, starting at the row in the URL."""
        before = self.number("before")
        if before is not None:
            rows = rows.filter(pk__lt=before)
        # Sorts by an expression. By the key itself, the planner may scan the whole table backward to find a session's
        # rows.
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
        is_kept = self.row.kept_from_sequence <= self.row.last_sequence  # turns that are not archived can be retracted
        return shown | {"may_select": shown["may_retract"] and bool(shown["entries"]) and is_kept}

    def turns(self) -> dict[str, Any]:
        """Read a page of turns: the newest, or those before, after or around the place in the URL."""
        session, turn, moment = self.row, self.number("at"), self._moment()
        around = moment.first_sequence if moment and turn is None else turn
        page = page_of_messages(session, TURNS, **self._bounds(around), kinds=turn_kinds(session)).messages
        turns = [message for message in page if message.kind != Message.Kind.PARTITION]
        first, last = (turns[0].sequence, turns[-1].sequence) if turns else (0, -1)
        begins_at = self._begins_at()
        lag_from = max(stays_live_from(session, {}), session.live_from_sequence)
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
        """Return the sequence of the first readable turn, including archived ones."""
        if not self.row.kept_from_sequence:
            return 0
        archived = self.row.archives.aggregate(first=Min("first_sequence"))["first"]
        return self.row.kept_from_sequence if archived is None else archived

    def _moment(self) -> Moment | None:
        """Return the moment that the URL names, if it is one of the session's; else None."""
        pk = self.number("moment")
        return self.seen(self.row.moments.filter(user_id=self.row.user_id, pk=pk)).first() if pk else None

    def _bounds(self, around: int | None) -> dict[str, int]:
        """Return the turn before or after which the page lies."""
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
    """Versions of the rolling summary, newest first, and the current one."""

    route, name, tab = "<int:pk>/summaries/", "summaries", "Summaries"
    needs = ("moments_app.view_summary",)
    template_name = "operator/sessions/summaries.html"

    def context(self) -> dict[str, Any]:
        versions = Summary.objects.for_session(self.row).select_related("base", "prompt_version")
        in_force = Summary.objects.latest_completed(self.row)
        return (
            super().context()
            | self.newest(versions)
            | {
                "in_force": in_force,
                "failed_job": failed_job_of(self.request, self.row),
            }
        )


class SessionMemory(SessionTab):
    """The streams that the session feeds, and the items formed from it."""

    route, name, tab = "<int:pk>/memory/", "memory", "Memory"
    needs = ("moments_app.view_memoryatom", "moments_app.view_memorystream")
    template_name = "operator/sessions/memory.html"

    def context(self) -> dict[str, Any]:
        seen = MemoryStream.objects.seen_by(self.row).select_related("user", "session")
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
    """The head of a session, above the form of its details."""

    before = "operator/sessions/head.html"

    def context(self) -> dict[str, Any]:
        return head_of(self.admin, self.request, self.row, SessionDetails.name)


def head_of(admin: Any, request: HttpRequest, session: Session, tab: str) -> dict[str, Any]:
    """Return the data for the head of a session, with the tabs that this operator may open."""
    tabs = tabs_of(admin, request, session, tab)
    return {"session": session, "tabs": tabs} | rights_of(admin, request, session)


def rights_of(admin: Any, request: HttpRequest, session: Session) -> dict[str, Any]:
    """Return what the operator may do with a session."""
    may_retract = request.user.has_perm("moments_app.add_retraction")
    return {"may_change": admin.has_change_permission(request, session), "may_retract": may_retract}
