"""The first page of the admin: problems, waiting work, and the activity of the last days.

Urgent data are read for each request. Counts over a month are read from the replica, if there is one, and cached for
some minutes. The page shows the time of the counts. Operators see only data that they have permissions for.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from operator import attrgetter
from typing import Any

from django.conf import settings
from django.contrib.humanize.templatetags.humanize import intcomma, naturaltime
from django.core.cache import cache
from django.http import HttpRequest
from django.urls import reverse
from django_q.models import Schedule

from memoryproject.status.checks import (
    DASHBOARD_CHECKS,
    REASON_CHECKS,
    CheckData,
    describe_heartbeat,
    findings,
    pluralize,
)
from memoryproject.status.site_state import State
from moments_app.models import Circuit, EngineCall, FailureGroup, Job, Moment
from moments_app.recall.index_words import IndexArchived
from moments_app.reports import overview
from moments_app.reports.incidents import incidents
from moments_app.reports.overview import Activity, Backlog, QueueTimes
from sessions_app.admin.links import list_url, page_url
from sessions_app.admin.views import may_see
from sessions_app.database.several_servers import read_for_page
from sessions_app.limited_operators import scope_key
from sessions_app.models import Session

KEPT_SECONDS = 300  # counting a month with a million turns takes a second
FAILURES_SHOWN = 8
RESTARTS_SHOWN = 8
JOBS = "admin:moments_app_job_changelist"
CALLS = "admin:moments_app_enginecall_changelist"


@dataclass(frozen=True)
class Card:
    title: str
    figure: str
    aside: str = ""
    url: str = ""
    is_bad: bool = False


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Return the context of `templates/overrides/admin/index.html`. Unfold calls this function."""
    sees_jobs = request.user.has_perm("moments_app.view_job")
    sees_sessions = request.user.has_perm("sessions_app.view_session")
    shown: dict[str, Any] = {"title": "Dashboard", "sees_jobs": sees_jobs, "sees_sessions": sees_sessions}
    if sees_jobs or sees_sessions:
        count = partial(read_for_page, request, overview.activity)
        activity: Any = cache.get_or_set(f"dashboard-activity{scope_key()}", count, KEPT_SECONDS)
        shown |= {"activity": activity, "prices_are_set": bool(settings.ENGINE.prices)}
        shown |= _work(request, activity) if sees_jobs else {}
        shown |= _memory(request, activity) if sees_sessions else {}
    return context | shown


def _work(request: HttpRequest, activity: Activity) -> dict[str, Any]:
    sees_calls = may_see(request, EngineCall)
    calls, cost = (reverse(CALLS), page_url(EngineCall, "cost")) if sees_calls else ("", "")
    # Failures with a known cause are shown as incidents, one for each cause.
    failed = Job.objects.filter(status=Job.Status.FAILED, failure=None)
    failed = failed.select_related("user", "session__user", "stream")
    facts = CheckData(sees_circuits=may_see(request, Circuit))
    facts.incidents = incidents(facts.circuits) if may_see(request, FailureGroup) else ()
    return {
        "incidents": facts.incidents,
        "alerts": list(findings(DASHBOARD_CHECKS, facts)),
        "changes": facts.recent_events.changes,
        "reasons": list(findings(REASON_CHECKS, facts)) if _is_degraded(facts) else [],
        "restarts": facts.recent_events.restarts[:RESTARTS_SHOWN],
        "work": _work_cards(request, facts.work),
        "failed_jobs": failed.order_by("-id")[:FAILURES_SHOWN],
        "periods": [("Today", activity.today), (f"{overview.DAYS} days", activity.total)],
        "failures": _failures(activity),
        "cost_url": cost,
        **_waits(activity),
        "engine_charts": [
            _chart("Model calls", activity, "used.calls", calls),
            _chart("Tokens", activity, "used.tokens", cost),
            _chart("Cost, USD", activity, "used.usd", cost),
        ],
    }


def _is_degraded(facts: CheckData) -> bool:
    return any(change.state == State.DEGRADED for change in facts.recent_events.changes[:1])


def _work_cards(request: HttpRequest, work: Backlog) -> list[Card]:
    jobs = reverse(JOBS)
    oldest = f"oldest due {naturaltime(work.oldest_due)}" if work.oldest_due else "none waiting"
    return [
        *_upgrade(work),
        Card("Due jobs", intcomma(work.due), oldest, f"{jobs}?state=due"),
        Card("Running", intcomma(work.running), f"{intcomma(work.stuck)} stuck", f"{jobs}?state=running"),
        Card("Waiting for retry", intcomma(work.later), "backoff, or engine unavailable", f"{jobs}?state=waiting"),
        Card("Failed", intcomma(work.failed), "retry them by hand", f"{jobs}?state=failed", bool(work.failed)),
        Card(
            "Workers",
            "not responding" if work.is_silent else "running",
            describe_heartbeat(work.worker_seen_at),
            list_url(Schedule) if may_see(request, Schedule) else "",
            work.is_silent,
        ),
    ]


def _upgrade(work: Backlog) -> list[Card]:
    """Return a card about turns archived by an earlier release, until they are searchable."""
    if not work.upgrading:
        return []
    left = "1 person to index" if work.upgrading == 1 else f"{intcomma(work.upgrading)} people to index"
    now = f"{intcomma(work.archives_done)} of {intcomma(work.archives)} archives indexed for the people in progress"
    return [Card("Archived turns", left, now, f"{reverse(JOBS)}?process={IndexArchived.name}")]


def _memory(request: HttpRequest, activity: Activity) -> dict[str, Any]:
    today, builds, compacted = activity.today, activity.builds, activity.compacted
    sessions = list_url(Session)
    moments = list_url(Moment) if may_see(request, Moment) else ""
    jobs = f"{reverse(JOBS)}?process=build_moments" if may_see(request, Job) else ""
    live = f"{intcomma(activity.live_turns)} of {intcomma(activity.turns)} turns are live"
    return {
        "memory": [
            Card("Sessions", intcomma(activity.sessions), f"{intcomma(today.sessions)} new today", sessions),
            Card("Turns", intcomma(activity.turns), f"{intcomma(today.turns)} new today", sessions),
            Card("Moments", f"≈ {intcomma(activity.moments)}", f"{intcomma(today.moments)} new today", moments),
            Card("Tokens compacted", "–" if compacted is None else f"{compacted:.1%}", live, sessions),
            Card(
                "Time to build a moment",
                _duration(builds.median) if builds else "–",
                f"95% within {_duration(builds.p95)}; latest {pluralize(builds.number, 'build')}"
                if builds
                else "no build yet",
                jobs,
            ),
        ],
        "memory_charts": [
            _chart("New turns", activity, "turns", sessions),
            _chart("New sessions", activity, "sessions", sessions),
            _chart("New moments", activity, "moments", moments),
            _context_chart(activity),
        ],
    }


# --- charts, as data for unfold's script; each chart has a table with the same data for screen readers ---

GRAY = "#7c8594"
TICKS = {"color": GRAY, "maxRotation": 0, "maxTicksLimit": 5}


@dataclass(frozen=True)
class Chart:
    """A figure over time, drawn by chart.js from JSON. `url` is the list of the counted rows, or blank."""

    title: str
    whole: str
    data: str
    options: str
    url: str = ""


def bar_chart(
    title: str,
    whole: str,
    bars: Sequence[tuple[str, float]],
    *,
    is_whole: bool,
    axis_max: int = 0,
    url: str = "",
    compared: tuple[str, Sequence[float]] | None = None,
) -> Chart:
    """Return a bar chart.

    Args:
        bars: Pairs of a label and a figure.
        is_whole: Whether the figures are integers.
        axis_max: 0 for the length of the longest bar.
        compared: The title and the figures of gray bars next to these. If given, a legend shows both titles.
    """
    sets = [(title, [figure for _, figure in bars], "var(--color-primary-600)")]
    sets += [(compared[0], list(compared[1]), GRAY)] if compared else []
    drawn = [
        {"label": label, "data": figures, "backgroundColor": color, "borderRadius": 2} for label, figures, color in sets
    ]
    data = {"labels": [label for label, _ in bars], "datasets": drawn}
    options = _options(is_whole=is_whole, axis_max=axis_max, has_legend=bool(compared))
    return Chart(title, whole, json.dumps(data), json.dumps(options), url)


def _options(*, is_whole: bool, axis_max: int, has_legend: bool) -> dict[str, Any]:
    ticks = TICKS | ({"precision": 0} if is_whole else {})
    ends = {"max": axis_max} if axis_max else {}
    return {
        "animation": False,
        "maintainAspectRatio": False,
        "plugins": {"legend": {"display": has_legend, "position": "bottom", "labels": {"color": GRAY, "boxWidth": 12}}},
        "scales": {
            "x": {"border": {"width": 0}, "grid": {"display": False}, "ticks": TICKS},
            "y": {"border": {"width": 0}, "beginAtZero": True, "ticks": ticks} | ends,
        },
    }


def _chart(title: str, activity: Activity, name: str, url: str) -> Chart:
    figures = list(map(attrgetter(name), activity.days))
    bars = [(label, float(figure)) for label, figure in zip(_labels(activity), figures, strict=True)]
    is_money = name == "used.usd"
    whole = _money(sum(figures)) if is_money else intcomma(sum(figures))
    return bar_chart(title, whole, bars, is_whole=not is_money, url=url)


def _context_chart(activity: Activity) -> Chart:
    whole, labels = activity.total, _labels(activity)
    bars = [(label, float(day.context_tokens)) for label, day in zip(labels, activity.days, strict=True)]
    share = whole.context_tokens / whole.transcript_tokens if whole.transcript_tokens else None
    total = f"{intcomma(whole.context_tokens)}" + (
        f", {share:.0%} of transcripts" if share is not None and share <= 1 else ""
    )
    transcripts = [float(day.transcript_tokens) for day in activity.days]
    return bar_chart("Tokens in contexts", total, bars, is_whole=True, compared=("Tokens in transcripts", transcripts))


def _waits(activity: Activity) -> dict[str, Any]:
    return {
        "wait_charts": [_wait_chart(lane.title, activity, waits) for lane, waits in activity.waits.items()],
        "wait_lanes": [lane.title for lane in activity.waits],
        "wait_days": [
            (day.date, [waits.p95_by_day.get(day.date) for waits in activity.waits.values()])
            for day in reversed(activity.days)
        ],
    }


def _wait_chart(name: str, activity: Activity, waits: QueueTimes) -> Chart:
    bars = [
        (label, round(waits.p95_by_day.get(day.date, 0.0), 2))
        for label, day in zip(_labels(activity), activity.days, strict=True)
    ]
    return bar_chart(f"{name}, s", f"95% within {_duration(waits.p95)}", bars, is_whole=False)


def _labels(activity: Activity) -> list[str]:
    return [f"{day.date:%d %b}" for day in activity.days]


def _failures(activity: Activity) -> list[tuple[str, int, int]]:
    today, whole = activity.today.failures, activity.total.failures
    return [(kind, today[kind], number) for kind, number in whole.most_common()]


def _money(usd: Decimal) -> str:
    return f"{usd:,.2f}" if usd >= 1 or not usd else f"{usd:.4f}"


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
