"""Models that reject the key, are down, or always reject one text."""

import time
from collections.abc import Iterator
from contextlib import suppress

from drill.course import Course, Fault
from drill.load import append
from drill.provider import Failure, failing_by_chance, no_failure, refusing, refusing_text
from drill.recovery import now, wait_until_caught_up
from drill.report import Row
from drill.site import Site, SiteNotReady, wait_for

KEY_SECONDS = 20.0  # duration of the rejection
ROUNDS = 20  # of two turns each, during the outage
OTHERS = 20  # people whose work must continue despite the rejected text
OTHERS_SECONDS = 60
REFUSED_TEXT = "the-text-that-no-model-takes"
REFUSED, AWAY, OTHER = "drill-refused", "drill-away-", "drill-other-"  # ids of people, or their prefixes
FAILING, UNAFFECTED = "drill-failing", "drill-beside-"
CHANCE = 0.1  # of any other call to fail
UNAFFECTED_SECONDS = 600  # maximum time for the work of the others, including backoff after random failures

TOLD_SECONDS = 60  # maximum time until the rejected text is reported

CAUSES = """
from moments_app.reports.incidents import incidents
for incident in incidents(): print(incident.cause, '-', incident.evidence)
"""
COUNT_OPEN_JOBS_OF_OTHERS = """
SELECT count(*) FROM moments_app_job job JOIN sessions_app_userprofile person ON person.id = job.user_id
WHERE status IN ('queued', 'processing') AND person.user_id ~ %s
"""
STATES_OF_REFUSED_JOBS = """
SELECT process || ' ' || status FROM moments_app_job job JOIN sessions_app_userprofile person
ON person.id = job.user_id WHERE person.user_id = %s AND job.error <> ''
UNION SELECT 'text marked as refused' FROM moments_app_turnembedding vector JOIN sessions_app_userprofile person
ON person.id = vector.user_id WHERE person.user_id = %s AND vector.vector IS NULL
"""


def keys(course: Course) -> Iterator[Row]:
    """Make the models reject the key for a while. No text may be given up because of that."""
    yield _away(course, f"model endpoint refuses the key for {KEY_SECONDS:.0f} s (401)", KEY_SECONDS, refusing(401))


def outage(course: Course) -> Iterator[Row]:
    """Make the models return 503 for a while."""
    yield _away(course, f"model endpoint unavailable for {course.outage:.0f} s (503)", course.outage, refusing(503))


def _away(course: Course, name: str, seconds: float, failure: Failure) -> Row:
    with course.fault(name, clients=0) as fault:
        wait_until_caught_up(course.site, now(), AWAY)
        course.provider.failure = failure
        before = course.provider.calls
        _append_for(course.site, fault, seconds)
        calls = course.provider.calls - before
        course.provider.failure = no_failure
        began, ended = time.monotonic(), now()
        fault.row.times = 1
        fault.row.remark(f"model calls in that time: {calls}")
        wait_until_caught_up(course.site, ended, AWAY)
        fault.row.seconds.append(time.monotonic() - began)
    return fault.row


def _append_for(site: Site, fault: Fault, seconds: float) -> None:
    """Append rounds of several people, spread over some seconds."""
    deadline = time.monotonic() + seconds
    for number in range(ROUNDS):
        append(site, fault.ledger, f"{AWAY}{number % 5}")
        time.sleep(max(deadline - time.monotonic(), 0) / (ROUNDS - number))


def refused(course: Course) -> Iterator[Row]:
    """Make the models always reject one person's text. Other people's work must continue, and the text be reported."""
    with course.fault(f"one text always refused, {OTHERS} others processed", clients=0) as fault:
        site = course.site
        wait_until_caught_up(site, now(), OTHER)
        course.provider.failure = refusing_text(REFUSED_TEXT, 400)
        append(site, fault.ledger, REFUSED, text=REFUSED_TEXT)
        began = time.monotonic()
        for number in range(OTHERS):
            append(site, fault.ledger, f"{OTHER}{number}")
        fault.row.times = 1
        wait_for(
            "the work of the others",
            lambda: not site.number(COUNT_OPEN_JOBS_OF_OTHERS, OTHER),
            OTHERS_SECONDS,
            pause=0.3,
        )
        fault.row.seconds.append(time.monotonic() - began)
        states: list[str] = []
        with suppress(SiteNotReady):
            wait_for("the rejected text to be reported", lambda: bool(_told(site, states)), TOLD_SECONDS, pause=0.5)
        fault.row.remark(", ".join(states) or "the refusal is not reported")
    yield fault.row


def failing(course: Course) -> Iterator[Row]:
    """Make one person's calls always fail, others randomly. The others' work must finish, and the cause be shown."""
    name = f"one person's calls always fail (500), {CHANCE:.0%} of {OTHERS} others' too"
    with course.fault(name, clients=0) as fault:
        site = course.site
        wait_until_caught_up(site, now(), OTHER)
        course.provider.failure = failing_by_chance(REFUSED_TEXT, CHANCE, seed=25)
        append(site, fault.ledger, FAILING, text=REFUSED_TEXT)
        began = time.monotonic()
        for number in range(OTHERS):
            append(site, fault.ledger, f"{UNAFFECTED}{number}")
        fault.row.times = 1
        wait_for(
            "the others' work",
            lambda: not site.number(COUNT_OPEN_JOBS_OF_OTHERS, UNAFFECTED),
            UNAFFECTED_SECONDS,
            pause=0.3,
        )
        fault.row.seconds.append(time.monotonic() - began)
        with suppress(SiteNotReady):
            wait_for("the person to be named", lambda: FAILING in _causes(site), 2 * TOLD_SECONDS, pause=2)
        fault.row.remark(f"the first page says: {_causes(site) or 'nothing'}")
    course.provider.failure = no_failure
    yield fault.row


def _causes(site: Site) -> str:
    """Return the texts of the incidents on the dashboard."""
    return "; ".join(site.manage("shell", "--verbosity", "0", "--command", CAUSES).splitlines())


def _told(site: Site, states: list[str]) -> list[str]:
    states[:] = sorted(state for (state,) in site.rows(STATES_OF_REFUSED_JOBS, REFUSED, REFUSED))
    return states
