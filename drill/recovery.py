"""When all is well again after a fault, and what is missing or there twice by then."""

import time
from datetime import UTC, datetime, timedelta

from drill.ledger import Count, Ledger
from drill.load import append
from drill.report import Row
from drill.site import NotWell, Site, wait_for

WELL_SECONDS = 120  # that a site may take until it serves and works again
CAUGHT_UP_SECONDS = 240  # that work which waits may take
PART = timedelta(minutes=10)  # that a fault takes at most, until then
REPLAY_SECONDS = 30  # in which rounds that were answered may still be stored

FAILED = "SELECT count(*) FROM moments_app_job WHERE status = 'failed' AND queued_at >= %s"
# The stand-in's answers say what the turns say: else the drill is of nothing but failures.
NOT_TAKEN = "SELECT count(*) FROM moments_app_enginecall WHERE error_kind = 'invalid_answer' AND created_at >= %s"
OVERLAPS = """
SELECT count(*) FROM moments_app_moment one JOIN moments_app_moment other
ON one.source_session_id = other.source_session_id AND one.id < other.id
AND one.first_sequence <= other.last_sequence AND other.first_sequence <= one.last_sequence
"""
OPEN = "SELECT count(*) FROM moments_app_job WHERE status IN ('queued', 'processing') AND queued_at < %s"
OPEN_OF = """
SELECT count(*) FROM moments_app_job job JOIN sessions_app_userprofile person ON person.id = job.user_id
WHERE status IN ('queued', 'processing') AND person.user_id = %s
"""
WITHOUT_VECTOR = """
SELECT count(*) FROM sessions_app_message turn JOIN sessions_app_userprofile person ON person.id = turn.user_id
WHERE kind = 'turn' AND role IN ('user', 'assistant') AND arrived_at < %s AND person.user_id ~ %s
AND NOT EXISTS (SELECT FROM moments_app_turnembedding WHERE source_id = turn.id AND vector IS NOT NULL)
"""

NO_ONE = "^$"  # a pattern that no person's id matches


def now() -> datetime:
    """Return the time, as the database has it."""
    return datetime.now(UTC)


def wait_until_well(site: Site, ledger: Ledger, person: str = "drill-check") -> None:
    """Wait until the site is ready, takes a round of turns, and has done the work that this makes due.

    Raises:
        NotWell: it takes too long.
    """
    wait_for("/readyz", lambda: site.status("GET", "/readyz", seconds=5) == 200, WELL_SECONDS)
    append(site, ledger, person)
    wait_for("the work of a round", lambda: not site.number(OPEN_OF, person), WELL_SECONDS, pause=0.3)


def wait_until_caught_up(site: Site, before: datetime, people: str) -> None:
    """Wait until all work that was asked for before a time has ended, and the texts of that time have vectors.

    Args:
        site: that catches up.
        before: the time.
        people: a pattern of those whose texts are to have vectors; rounds without an answer wait for one.

    Raises:
        NotWell: it takes too long; says what is missing.
    """
    deadline = time.monotonic() + CAUGHT_UP_SECONDS
    while True:
        jobs, texts = site.number(OPEN, before), site.number(WITHOUT_VECTOR, before, people)
        if not jobs and not texts:
            return
        if time.monotonic() > deadline:
            told = f"{jobs} jobs are open, {site.number(FAILED, before - PART)} failed, {texts} texts have no vector"
            raise NotWell(f"After {CAUGHT_UP_SECONDS} s {told}.")
        time.sleep(0.5)


def count(site: Site, ledger: Ledger) -> Count:
    """Compare ledger and transcript; rounds that are replayed get their time."""
    deadline = time.monotonic() + REPLAY_SECONDS
    while True:
        found = ledger.count(site.turns())
        if not found.lost or time.monotonic() > deadline:
            return found
        time.sleep(1)


def settle(site: Site, ledger: Ledger, row: Row) -> None:
    """Put into a row how many turns were acknowledged, and how many of them are lost or there twice."""
    turns = count(site, ledger)
    row.acknowledged, row.lost, row.doubled = turns.acknowledged, turns.lost, turns.doubled
    row.rounds, row.rounds_lost = turns.rounds, turns.rounds_lost
    if turns.rounds_lost:
        row.remark(f"{turns.rounds_lost} of {turns.rounds} chat rounds lost")


def work_lost_or_doubled(site: Site, row: Row, began: datetime) -> None:
    """Add to a row the jobs that were given up since a time, and the moments that hold the same turns."""
    failed, overlaps = site.number(FAILED, began), site.number(OVERLAPS)
    row.lost += failed
    row.doubled += overlaps
    if not_taken := site.number(NOT_TAKEN, began):
        row.never(f"{not_taken} answers of the models were not taken")
    if failed:
        row.remarks.append(f"{failed} jobs failed for good")
    if overlaps:
        row.remarks.append(f"{overlaps} pairs of moments overlap")
