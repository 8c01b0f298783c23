"""Models that refuse the key, are away, or never take one text."""

import time
from collections.abc import Iterator
from contextlib import suppress

from drill.course import Course, Fault
from drill.load import append
from drill.provider import Failure, failing_by_chance, refusing, refusing_text, well
from drill.recovery import now, wait_until_caught_up
from drill.report import Row
from drill.site import NotWell, Site, wait_for

KEY_SECONDS = 20.0  # that the key is refused
ROUNDS = 20  # of two turns each, while the models are away
OTHERS = 20  # people whose work goes on beside the text that is refused
OTHERS_SECONDS = 60
REFUSED_TEXT = "the-text-that-no-model-takes"
REFUSED, AWAY, OTHER = "drill-refused", "drill-away-", "drill-other-"  # names of people, or how they begin
FAILING, BESIDE = "drill-failing", "drill-beside-"
CHANCE = 0.1  # of every other call to fail
BESIDE_SECONDS = 600  # in which the others have to be done, with the back-off of those that failed by chance

TOLD_SECONDS = 60  # in which it has to be told that a text is refused

CAUSES = """
from moments_app.reports.incidents import incidents
for incident in incidents(): print(incident.cause, '-', incident.evidence)
"""
OPEN_OF_OTHERS = """
SELECT count(*) FROM moments_app_job job JOIN sessions_app_userprofile person ON person.id = job.user_id
WHERE status IN ('queued', 'processing') AND person.user_id ~ %s
"""
OF_THE_REFUSED = """
SELECT process || ' ' || status FROM moments_app_job job JOIN sessions_app_userprofile person
ON person.id = job.user_id WHERE person.user_id = %s AND job.error <> ''
UNION SELECT 'text marked as refused' FROM moments_app_turnembedding vector JOIN sessions_app_userprofile person
ON person.id = vector.user_id WHERE person.user_id = %s AND vector.vector IS NULL
"""


def keys(course: Course) -> Iterator[Row]:
    """Have the models refuse the key for a while: no text may be given up for that."""
    yield _away(course, f"model endpoint refuses the key for {KEY_SECONDS:.0f} s (401)", KEY_SECONDS, refusing(401))


def outage(course: Course) -> Iterator[Row]:
    """Have the models answer 503 for a while."""
    yield _away(course, f"model endpoint unavailable for {course.outage:.0f} s (503)", course.outage, refusing(503))


def _away(course: Course, name: str, seconds: float, failure: Failure) -> Row:
    with course.fault(name, clients=0) as fault:
        wait_until_caught_up(course.site, now(), AWAY)
        course.provider.failure = failure
        before = course.provider.calls
        _append_for(course.site, fault, seconds)
        calls = course.provider.calls - before
        course.provider.failure = well
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
    """Have the models refuse one person's text for ever: the work of others goes on, and that of the person is told."""
    with course.fault(f"one text always refused, {OTHERS} others processed", clients=0) as fault:
        site = course.site
        wait_until_caught_up(site, now(), OTHER)
        course.provider.failure = refusing_text(REFUSED_TEXT, 400)
        append(site, fault.ledger, REFUSED, text=REFUSED_TEXT)
        began = time.monotonic()
        for number in range(OTHERS):
            append(site, fault.ledger, f"{OTHER}{number}")
        fault.row.times = 1
        wait_for("the work of the others", lambda: not site.number(OPEN_OF_OTHERS, OTHER), OTHERS_SECONDS, pause=0.3)
        fault.row.seconds.append(time.monotonic() - began)
        states: list[str] = []
        with suppress(NotWell):
            wait_for("the text to be told of", lambda: bool(_told(site, states)), TOLD_SECONDS, pause=0.5)
        fault.row.remark(", ".join(states) or "the refusal is not reported")
    yield fault.row


def failing(course: Course) -> Iterator[Row]:
    """Have one person's calls fail for ever, and others by chance: the others' work is done, and the cause is named."""
    name = f"one person's calls always fail (500), {CHANCE:.0%} of {OTHERS} others' too"
    with course.fault(name, clients=0) as fault:
        site = course.site
        wait_until_caught_up(site, now(), OTHER)
        course.provider.failure = failing_by_chance(REFUSED_TEXT, CHANCE, seed=25)
        append(site, fault.ledger, FAILING, text=REFUSED_TEXT)
        began = time.monotonic()
        for number in range(OTHERS):
            append(site, fault.ledger, f"{BESIDE}{number}")
        fault.row.times = 1
        wait_for("the others' work", lambda: not site.number(OPEN_OF_OTHERS, BESIDE), BESIDE_SECONDS, pause=0.3)
        fault.row.seconds.append(time.monotonic() - began)
        with suppress(NotWell):
            wait_for("the person to be named", lambda: FAILING in _causes(site), 2 * TOLD_SECONDS, pause=2)
        fault.row.remark(f"the first page says: {_causes(site) or 'nothing'}")
    course.provider.failure = well
    yield fault.row


def _causes(site: Site) -> str:
    """Return what the cards of the first page say."""
    return "; ".join(site.manage("shell", "--verbosity", "0", "--command", CAUSES).splitlines())


def _told(site: Site, states: list[str]) -> list[str]:
    states[:] = sorted(state for (state,) in site.rows(OF_THE_REFUSED, REFUSED, REFUSED))
    return states
