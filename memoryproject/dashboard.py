"""The first page of the admin: does anything need somebody, what waits, and what was done in the last days.

What is urgent is read each time it is looked at. What counts a month is kept for some minutes, and says when that was;
it is read from the replica, where there is one.
Everybody sees what they have the right to see the rows of.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib.humanize.templatetags.humanize import intcomma, naturaltime
from django.core.cache import cache
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.timesince import timesince

from memoryproject import health, site_state
from moments_app.models import Circuit, EngineCall, FailureGroup, Job, Moment
from moments_app.operator.charts import Chart, bar_chart
from moments_app.recall.index_archived import IndexArchived
from moments_app.reports import overview
from moments_app.reports.overview import Activity, Backlog, Day
from sessions_app.admin.links import change_url, list_url, page_url
from sessions_app.admin.views.base import may_see
from sessions_app.limited_operators import scope_key
from sessions_app.models import Session
from sessions_app.replica import from_replica

KEPT_SECONDS = 300  # a month of a million turns takes a second to count
WORKER_SILENT = timedelta(minutes=3)  # the most frequent schedule runs every minute
FAILURES_SHOWN = 8
CHANGES_SHOWN = 8
JOBS = "admin:moments_app_job_changelist"
CALLS = "admin:moments_app_enginecall_changelist"


@dataclass(frozen=True)
class Alert:
    """Something that needs somebody, and where to look."""

    text: str
    url: str = ""
    link: str = ""


@dataclass(frozen=True)
class Card:
    """One figure, what it is, and a word on it."""

    title: str
    figure: str
    aside: str = ""
    url: str = ""
    is_bad: bool = False


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Collect what `templates/overrides/admin/index.html` shows beside what every page does; unfold calls it."""
    sees_jobs = request.user.has_perm("moments_app.view_job")
    sees_sessions = request.user.has_perm("sessions_app.view_session")
    shown: dict[str, Any] = {"title": "Dashboard", "sees_jobs": sees_jobs, "sees_sessions": sees_sessions}
    if sees_jobs or sees_sessions:
        count = partial(from_replica, request, overview.activity)
        activity: Any = cache.get_or_set(f"dashboard-activity{scope_key()}", count, KEPT_SECONDS)
        shown |= {"activity": activity, "prices_are_set": bool(settings.ENGINE.prices)}
        shown |= _work(request, activity) if sees_jobs else {}
        shown |= _memory(request, activity) if sees_sessions else {}
    return context | shown


def _work(request: HttpRequest, activity: Activity) -> dict[str, Any]:
    work, recently = overview.work(), site_state.recently(CHANGES_SHOWN)
    sees_calls = may_see(request, EngineCall)
    calls, cost = (reverse(CALLS), page_url(EngineCall, "cost")) if sees_calls else ("", "")
    # What has a known cause is told by that, each cause once.
    failed = Job.objects.filter(status=Job.Status.FAILED, failure=None)
    failed = failed.select_related("user", "session__user", "stream")
    known = FailureGroup.objects.with_stalled().order_by("-last_seen_at", "-id")
    failures = list(known[:FAILURES_SHOWN]) if may_see(request, FailureGroup) else []
    circuits = list(Circuit.objects.open().with_held()) if may_see(request, Circuit) else []
    told = _told(failures, circuits)
    explained = {failure.engine for failure in failures if failure.stalled and not failure.muted_at}
    others = [circuit for circuit in circuits if circuit.engine not in explained]
    return {
        "alerts": [
            *told,
            *map(Alert, recently.refused),
            *_alerts(work, activity.today, others, failures),
        ],
        "changes": recently.changes,
        "restarts": recently.restarts,
        "work": _work_cards(work),
        "failed_jobs": failed.order_by("-id")[:FAILURES_SHOWN],
        "periods": [("Today", activity.today), (f"{overview.DAYS} days", activity.whole)],
        "causes": [failure for failure in failures if not failure.muted_at],
        "failures": _failures(activity),
        "cost_url": cost,
        "engine_charts": [
            _chart("Engine calls", activity, "calls", calls),
            _chart("Tokens", activity, "tokens", cost),
            _chart("Cost, USD", activity, "usd", cost),
        ],
    }


def _told(failures: Sequence[Any], circuits: Sequence[Any]) -> list[Alert]:
    """Say of each cause because of which jobs failed or wait what is wrong and what to do, the worst first."""
    undone = [failure for failure in failures if failure.stalled and not failure.muted_at]
    undone.sort(key=lambda failure: -failure.stalled)
    held = {circuit.engine: circuit.held for circuit in circuits if circuit.held}
    return [
        Alert(_sentence(failure, held.get(failure.engine, 0)), change_url(failure), "Look at it") for failure in undone
    ]


def _sentence(failure: Any, held: int) -> str:
    where = f", {failure.engine}" if failure.engine else ""
    jobs = "1 job is undone" if failure.stalled == 1 else f"{intcomma(failure.stalled)} jobs are undone"
    whose = f", of {failure.people} {'person' if failure.people == 1 else 'people'}" if failure.people else ""
    others = f"; {_count(held, 'job')} held until it answers, whosever they are" if held else ""
    what = f"{failure.process} fails ({failure.kind.replace('_', ' ')}{where})"
    return f"{what} for {timesince(failure.first_seen_at)}: {jobs}{whose}{others}. {failure.remedy}"


def _alerts(work: Backlog, today: Day, circuits: Sequence[Circuit], known: Sequence[Any]) -> list[Alert]:
    jobs, calls = reverse(JOBS), reverse(CALLS)
    found = [Alert(state) for state in health.checks().values() if state != health.OK]
    if _is_silent(work.worker_seen_at):
        found.append(Alert(f"No worker: {_seen(work.worker_seen_at)}. Start manage.py qcluster."))
    found += [Alert(circuit.why, change_url(circuit), "Look at it") for circuit in circuits]
    if work.unexplained:
        found.append(
            Alert(_count(work.unexplained, "job") + " failed for good.", f"{jobs}?state=failed", "Look at them")
        )
    if work.stuck:
        text = _count(work.stuck, "job") + " of a worker that fell silent."
        found.append(Alert(text, f"{jobs}?state=stuck", "Look at them"))
    if work.task_errors:
        text = _count(work.task_errors, "task") + f" of the queue ended in an error within {overview.DAYS} days."
        found.append(Alert(text, reverse("admin:django_q_failure_changelist"), "Read why"))
    midnight = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    # Where the causes are known, they say what still waits; what was tried again since is no alarm.
    if (failures := today.failed) and not any(failure.last_seen_at >= midnight for failure in known):
        text = f"{intcomma(failures)} of {_count(today.calls, 'engine call')} failed today."
        found.append(Alert(text, f"{calls}?ok=0", "Read why"))
    return found


def _is_silent(seen_at: datetime | None) -> bool:
    return seen_at is None or timezone.now() - seen_at > WORKER_SILENT


def _seen(seen_at: datetime | None) -> str:
    return f"the last sign of one was {naturaltime(seen_at)}" if seen_at else "none has run yet"


def _work_cards(work: Backlog) -> list[Card]:
    jobs = reverse(JOBS)
    oldest = f"the oldest came due {naturaltime(work.oldest_due)}" if work.oldest_due else "nothing waits"
    return [
        *_upgrade(work),
        Card("Due jobs", intcomma(work.due), oldest, f"{jobs}?state=due"),
        Card("Running", intcomma(work.running), f"{intcomma(work.stuck)} of them silent", f"{jobs}?state=running"),
        Card("Wait for a later attempt", intcomma(work.later), "a back-off, or a model away", f"{jobs}?state=waiting"),
        Card("Failed", intcomma(work.failed), "until they are retried", f"{jobs}?state=failed", bool(work.failed)),
        Card(
            "Workers",
            "silent" if _is_silent(work.worker_seen_at) else "alive",
            _seen(work.worker_seen_at),
            reverse("admin:django_q_schedule_changelist"),
            _is_silent(work.worker_seen_at),
        ),
    ]


def _upgrade(work: Backlog) -> list[Card]:
    """Return a card on archived turns of an earlier release, until searches find them."""
    if not work.upgrading:
        return []
    left = "1 person left" if work.upgrading == 1 else f"{intcomma(work.upgrading)} people left"
    now = f"made searchable; {intcomma(work.archives_done)} of {intcomma(work.archives)} archives of who is worked on"
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
            Card("Turns", intcomma(activity.turns), f"{intcomma(today.turns)} came today", sessions),
            Card("Moments", f"≈ {intcomma(activity.moments)}", f"{intcomma(today.moments)} made today", moments),
            Card("Tokens compacted", "–" if compacted is None else f"{compacted:.1%}", live, sessions),
            Card(
                "Threshold to moment",
                _duration(builds.median) if builds else "–",
                f"95 % within {_duration(builds.p95)}; the last {_count(builds.number, 'build')}"
                if builds
                else "no build was due yet",
                jobs,
            ),
        ],
        "memory_charts": [
            _chart("Turns that came", activity, "turns", sessions),
            _chart("New sessions", activity, "sessions", sessions),
            _chart("Moments made", activity, "moments", moments),
        ],
    }


def _chart(title: str, activity: Activity, name: str, url: str) -> Chart:
    figures = [getattr(day, name) for day in activity.days]
    bars = [(f"{day.date:%d %b}", float(figure)) for day, figure in zip(activity.days, figures, strict=True)]
    whole = _money(sum(figures)) if name == "usd" else intcomma(sum(figures))
    return bar_chart(title, whole, bars, is_whole=name != "usd", url=url)


def _failures(activity: Activity) -> list[tuple[str, int, int]]:
    """Kinds of failed calls, those of today and of all days, the most frequent first."""
    today, whole = activity.today.failures, activity.whole.failures
    return [(kind, today[kind], number) for kind, number in whole.most_common()]


def _count(number: int, noun: str) -> str:
    return f"{intcomma(number)} {noun}{'' if number == 1 else 's'}"


def _money(usd: Decimal) -> str:
    return f"{usd:,.2f}" if usd >= 1 or not usd else f"{usd:.4f}"


def _duration(seconds: float) -> str:
    """In the unit that says most."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
