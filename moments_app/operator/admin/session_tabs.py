"""What the tabs of a session's page show: its transcript, and what was made of it.

Each takes a few queries, whatever there is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import F, QuerySet
from django.http import HttpRequest
from django.urls import reverse

from moments_app.models import ContextReceipt, Job, MemoryStream, Moment, Summary
from moments_app.moments.build import stays_live_from
from moments_app.operator.admin.transcript import Marks, entries
from sessions_app.models import Message, Session
from sessions_app.transcript.load import page_of_messages

TURNS = 100  # of a page
ROWS = 25
NEWEST = 2**62  # behind every sequence


@dataclass(frozen=True)
class Tab:
    """A tab: the last part of its address, what it is called, and the permission it takes."""

    name: str
    title: str
    permission: str


TABS = (
    Tab("change", "Transcript", "sessions_app.view_session"),
    Tab("summaries", "Summaries", "moments_app.view_summary"),
    Tab("memory", "Memory", "moments_app.view_memoryatom"),
    Tab("jobs", "Jobs", "moments_app.view_job"),
    Tab("contexts", "Contexts served", "moments_app.view_contextreceipt"),
    Tab("context", "Context preview", "sessions_app.view_session"),
    Tab("details", "Details", "sessions_app.view_session"),
)


def tabs_of(request: HttpRequest, session: Session, current: str) -> list[dict[str, Any]]:
    """The tabs that this operator may open."""
    return [
        {
            "title": tab.title,
            "url": reverse(f"admin:sessions_app_session_{tab.name}", args=[session.pk]),
            "is_current": tab.name == current,
        }
        for tab in TABS
        if request.user.has_perm(tab.permission)
    ]


def number(request: HttpRequest, name: str) -> int | None:
    """A whole number in the address; None where there is none."""
    value = request.GET.get(name, "")
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 19 else None


# --- the transcript ---


def transcript(request: HttpRequest, session: Session) -> dict[str, Any]:
    """A page of the transcript: the newest turns, or those before, after or around what the address names."""
    turn, moment = number(request, "at"), _moment(session, number(request, "moment"))
    around = moment.first_sequence if moment and turn is None else turn
    page = page_of_messages(session, TURNS, **_stretch(request, session, around)).messages
    turns = [message for message in page if message.kind == Message.Kind.TURN]
    first, last = (turns[0].sequence, turns[-1].sequence) if turns else (0, -1)
    lag_from = max(stays_live_from(session, {}), session.live_from_sequence)
    marks = Marks(session.live_from_sequence, lag_from, turn, moment.pk if moment else None)
    return {
        "entries": entries(page, marks),
        "first": first,
        "last": last,
        "earlier": first > session.kept_from_sequence,
        "later": bool(turns) and last < session.last_sequence,
        "found_moment": moment,
    }


def _moment(session: Session, pk: int | None) -> Moment | None:
    return session.moments.filter(user_id=session.user_id, pk=pk).first() if pk else None


def _stretch(request: HttpRequest, session: Session, around: int | None) -> dict[str, int]:
    """Before or after which turn the page lies."""
    for name in ("after", "before"):
        if (sequence := number(request, name)) is not None:
            return {name: sequence}
    if around is not None:
        return {"after": min(around, session.last_sequence) - TURNS // 2 - 1}
    return {"before": NEWEST}


# --- what was made of it ---


def summaries(request: HttpRequest, session: Session) -> dict[str, Any]:
    """Versions of the rolling summary, newest first, and the one in force."""
    versions = Summary.objects.for_session(session).select_related("base", "prompt_version")
    return _older(request, versions) | {"in_force": Summary.objects.latest_completed(session)}


def memory(request: HttpRequest, session: Session) -> dict[str, Any]:
    """The streams that the session feeds, and what was formed from it."""
    streams = MemoryStream.objects.seen_by(session).select_related("user", "session").order_by("stream_type", "id")
    atoms = session.atoms.select_related("stream__user", "stream__session").order_by("-pk")
    return _older(request, atoms) | {"streams": list(streams[:ROWS])}


def jobs(request: HttpRequest, session: Session) -> dict[str, Any]:
    """Jobs about the session, newest first."""
    return _older(request, Job.objects.filter(user_id=session.user_id, session=session))


def contexts(request: HttpRequest, session: Session) -> dict[str, Any]:
    """Contexts that were served for it, newest first."""
    return _older(request, ContextReceipt.objects.filter(user_id=session.user_id, session=session))


def _older(request: HttpRequest, rows: QuerySet[Any]) -> dict[str, Any]:
    """A page of rows, newest first, from the row on that the address names."""
    before = number(request, "before")
    if before is not None:
        rows = rows.filter(pk__lt=before)
    # By an expression: by the key itself the planner may walk all the table backwards for the rows of one session.
    found: Sequence[Any] = list(rows.order_by(-F("pk"))[: ROWS + 1])
    return {"rows": found[:ROWS], "older": found[ROWS - 1].pk if len(found) > ROWS else None}
