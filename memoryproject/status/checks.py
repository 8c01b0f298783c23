"""The health checks of the site. `/readyz`, the watchdog and the dashboard each run some of them.

A change of the watchdog's verdict is an event in the log (`site_state`). `/metrics` and notifications report such
changes.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property, partial

from django.contrib.humanize.templatetags.humanize import intcomma, naturaltime
from django.db import connection
from django.http import HttpRequest, JsonResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.timesince import timesince

from memoryproject.database.timeouts import statement_timeout
from memoryproject.database.verification import request_problems, schema_mismatch
from memoryproject.schedules import late_schedules
from memoryproject.status.site_state import RESTARTS_WITHIN, RecentEvents, State, recent_events
from moments_app.models import Circuit, Job
from moments_app.reports import overview
from moments_app.reports.incidents import Incident
from moments_app.reports.overview import Backlog, job_groups
from sessions_app.admin.links import change_url, list_url
from sessions_app.database.transactions import ADMIN, using_role

QUEUE_AGE_ALARM = timedelta(minutes=5)  # if due work waits longer, the site counts as degraded
MANY_RESTARTS = 3
CHANGES = 8  # number of changes of the state to read
SCHEDULES = "admin:django_q_schedule_changelist"

NAMES = "database", "migrations", "queue"  # the checks in the response of `/readyz`
OK, UNAVAILABLE = "ok", "unavailable"

is_schema_current = False


class Level(StrEnum):
    INFO = "info"  # shown to operators, but the site still counts as up
    DEGRADED = "degraded"
    DOWN = "down"


INFO, DEGRADED, DOWN = Level


@dataclass(frozen=True)
class Finding:
    """A problem that a check found.

    Args:
        sentence: A sentence for operators, without text of a person.
        link: The text of the link, if there is a page.
        url: Returns the URL of the page.
    """

    name: str
    level: Level
    sentence: str
    link: str = ""
    url: Callable[[], str] = str


Findings = Iterator[Finding]


@dataclass
class CheckData:
    """Data that checks and their caller share, each read at most once.

    `incidents` are those that the dashboard shows.
    """

    incidents: Sequence[Incident] = ()
    sees_circuits: bool = True

    @cached_property
    def circuits(self) -> list[Circuit]:
        return list(Circuit.objects.open()) if self.sees_circuits else []

    @cached_property
    def recent_events(self) -> RecentEvents:
        return recent_events(CHANGES)

    @cached_property
    def work(self) -> Backlog:
        return overview.backlog()


# --- readiness ---


def _database(_: CheckData) -> Findings:
    try:
        wrong = _schema_mismatch()
    except Exception as error:
        yield Finding("database", DOWN, _unanswered(error))
    else:
        if wrong:
            yield Finding("migrations", DOWN, wrong)


def _schema_mismatch() -> str:
    """Return why the tables don't match this code, or a blank string.

    A match is cached, because during a rollout the next release migrates while this one still serves.
    """
    global is_schema_current
    with using_role(None):  # before the first `migrate`, the login's own role is the only one
        wrong = "" if is_schema_current else schema_mismatch()
    is_schema_current = not wrong
    return wrong


def mark_schema_current() -> None:
    """Record that this process has migrated the tables, so that its forks don't need to load all migrations."""
    global is_schema_current
    is_schema_current = True


def _queue(_: CheckData) -> Findings:
    try:
        age = Job.objects.oldest_wait()
    except Exception as error:
        yield Finding("queue", DEGRADED, _unanswered(error))
    else:
        if age > QUEUE_AGE_ALARM.total_seconds():
            yield Finding("queue", DEGRADED, f"A due job has waited for {age:.0f} s. Check that a worker is running.")


def _unanswered(error: Exception) -> str:
    """Return a sentence with only the class of an error, because its text may name hosts."""
    return f"No answer: {type(error).__name__}"


# --- work ---


def _held(_: CheckData) -> Findings:
    """Yield the reasons why jobs are waiting. A backoff or a running job is a reason only after `QUEUE_AGE_ALARM`."""
    now = timezone.now()
    groups = job_groups(Job.objects.all())
    for kind in Job.Held:
        held = [group for group in groups if group.waits_for == kind]
        since = min((group.since for group in held if group.since), default=now)
        if held and (kind in (Job.Held.CIRCUIT, Job.Held.BUDGET) or now - since > QUEUE_AGE_ALARM):
            number = sum(group.number for group in held)
            jobs = "1 job has" if number == 1 else f"{number:,} jobs have"
            yield Finding("held", DEGRADED, f"{jobs} been waiting for {kind.label} since {since:%H:%M:%S} UTC.")


def _circuits(data: CheckData, *, of_incidents: bool = False) -> Findings:
    """Yield open circuits: if `of_incidents`, those that incidents contain, otherwise the rest."""
    shown = {circuit.pk for incident in data.incidents for circuit in incident.circuits}
    for circuit in data.circuits:
        if (circuit.pk in shown) == of_incidents:
            yield Finding("circuits", DEGRADED, circuit.why, "View details", partial(change_url, circuit))


def _providers(data: CheckData) -> Findings:
    for sentence in data.recent_events.refused:
        yield Finding("providers", DEGRADED, sentence)


def _worker(data: CheckData) -> Findings:
    if data.work.is_silent:
        seen = describe_heartbeat(data.work.worker_seen_at)
        yield Finding("worker", INFO, f"No worker is running: {seen}. Start one with manage.py qcluster.")


def _work(data: CheckData) -> Findings:
    work = data.work
    for number, what, state in (
        (work.unexplained, "failed permanently.", "failed"),
        (work.stuck, "stuck: the worker stopped responding.", "stuck"),
    ):
        if number:
            sentence = f"{pluralize(number, 'job')} {what}"
            yield Finding("work", INFO, sentence, "View details", partial(list_url, Job, state=state))


# --- processes and hosts ---


def _restarts(data: CheckData) -> Findings:
    died = [event.payload.get("told", "") for event in data.recent_events.restarts if event.age <= RESTARTS_WITHIN]
    if len(died) >= MANY_RESTARTS:
        often = f"{len(died)} times in {RESTARTS_WITHIN.seconds // 60} minutes"
        yield Finding("restarts", DEGRADED, f"Processes crashed {often}. The latest: {died[0]}")


def _schedules(_: CheckData) -> Findings:
    for name, age in late_schedules().items():
        sentence = (
            f"The schedule {name} has not run for {timesince(timezone.now() - age)}. Check that a worker is running."
        )
        yield Finding("schedules", DEGRADED, sentence, "View schedules", partial(reverse, SCHEDULES))


def _clocks(data: CheckData) -> Findings:
    for event in data.recent_events.times_corrected:
        times = event.payload["told"]
        sentence = f"Timestamps in the future were reset to the current time: {times}. Check the clocks of all hosts."
        yield Finding("clocks", DEGRADED, sentence)


READINESS_CHECKS = (_database, _queue)
DEGRADING_CHECKS = (_held, _circuits, _providers, _restarts, _schedules, _clocks)
# The dashboard shows findings of these checks as reasons for the state, and all other findings as alerts.
REASON_CHECKS = (_held, partial(_circuits, of_incidents=True), _restarts)
DASHBOARD_CHECKS = (*READINESS_CHECKS, _worker, _circuits, _providers, _schedules, _clocks, _work)


def findings(checks: Iterable[Callable[[CheckData], Findings]], data: CheckData) -> Findings:
    """Run checks until one finds that the site is down."""
    for check in checks:
        for finding in check(data):
            yield finding
            if finding.level == DOWN:
                return


def with_request(found: list[Finding]) -> list[Finding]:
    """Return the findings and, unless they say that the site is down, the problems of a request's transaction."""
    return found if is_down(found) else [*found, *(Finding("database", DOWN, wrong) for wrong in request_problems())]


def is_down(found: Iterable[Finding]) -> bool:
    return any(finding.level == DOWN for finding in found)


@dataclass(frozen=True)
class Verdict:
    state: State
    reasons: list[str]


def judge() -> Verdict:
    """Return the state of the site, with the findings that degrade it or take it down."""
    with statement_timeout():
        found = list(findings((*READINESS_CHECKS, *DEGRADING_CHECKS), CheckData()))
    found = with_request(found)
    if is_down(found):
        return Verdict(State.DOWN, [finding.sentence for finding in found if finding.level == DOWN])
    return Verdict(State.DEGRADED if found else State.UP, [finding.sentence for finding in found])


def pluralize(number: int, noun: str) -> str:
    return f"{intcomma(number)} {noun}{'' if number == 1 else 's'}"


def describe_heartbeat(seen_at: datetime | None) -> str:
    return f"last heartbeat {naturaltime(seen_at)}" if seen_at else "none has run yet"


class Readiness:
    """The response of `/readyz`, computed in a separate thread, because a hanging database may block it."""

    TIMEOUT = 3.0

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="readiness")
        self._check: asyncio.Future[list[Finding]] | None = None

    async def check(self) -> tuple[int, dict[str, object]]:
        if self._check is None or self._check.done():
            self._check = asyncio.get_running_loop().run_in_executor(self._executor, _run_checks)
        try:
            found = await asyncio.wait_for(asyncio.shield(self._check), self.TIMEOUT)
        except TimeoutError:
            checks = {"database": f"No response within {self.TIMEOUT:.0f} s."}
            return 503, {"status": UNAVAILABLE, "checks": checks}
        return _response(found)


def _run_checks() -> list[Finding]:
    try:
        with using_role(ADMIN):  # this role sees the jobs of all people
            return readiness()
    finally:
        connection.close()


def _response(found: list[Finding]) -> tuple[int, dict[str, object]]:
    """Return 503 only if requests can't be served. If background work is late, return 200 with the reason."""
    checks = dict.fromkeys(NAMES, OK) | {finding.name: finding.sentence for finding in found}
    if is_down(found):
        return 503, {"status": UNAVAILABLE, "checks": checks}
    return 200, {"status": DEGRADED if found else OK, "checks": checks}


def healthz(request: HttpRequest) -> JsonResponse:
    """Return 200 while the process is alive."""
    return JsonResponse({"status": OK})


def readyz(request: HttpRequest) -> JsonResponse:
    """Return whether requests are served, and whether background work is on time."""
    status, body = _response(readiness())
    return JsonResponse(body, status=status)


def readiness() -> list[Finding]:
    return with_request(list(findings(READINESS_CHECKS, CheckData())))
