"""The recovery after a fault: when the site works again, and what is then missing or duplicated."""

import time
from datetime import UTC, datetime, timedelta

from drill.ledger import Count, Ledger
from drill.load import append
from drill.report import Row
from drill.site import Site, SiteNotReady, wait_for

READY_SECONDS = 120  # maximum time until a site serves and works again
CAUGHT_UP_SECONDS = 240  # maximum time for waiting jobs
PART = timedelta(minutes=10)  # maximum duration of a fault
REPLAY_SECONDS = 30  # maximum time to store rounds that were answered

FAILED = "SELECT count(*) FROM moments_app_job WHERE status = 'failed' AND queued_at >= %s"
# The model's results must be supported by the turns. Otherwise, the drill would only measure failures.
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

MATCHES_NOBODY = "^$"  # a pattern that no person's id matches


def now() -> datetime:
    """Return the current time. The database's clock is the same."""
    return datetime.now(UTC)


def wait_until_ready(site: Site, ledger: Ledger, person: str = "drill-check") -> None:
    """Wait until the site is ready, accepts a round of turns, and has done the resulting jobs.

    Raises:
        SiteNotReady: It takes too long.
    """
    wait_for("/readyz", lambda: site.status("GET", "/readyz", seconds=5) == 200, READY_SECONDS)
    append(site, ledger, person)
    wait_for("the work of a round", lambda: not site.number(OPEN_OF, person), READY_SECONDS, pause=0.3)


def wait_until_caught_up(site: Site, before: datetime, people: str) -> None:
    """Wait until all jobs that were queued before a time have ended, and all texts before it have vectors.

    Args:
        site: The site.
        before: The time.
        people: A pattern for the people whose texts must have vectors. Rounds without an answer need an answer first.

    Raises:
        SiteNotReady: It takes too long. The message says what is missing.
    """
    deadline = time.monotonic() + CAUGHT_UP_SECONDS
    while True:
        jobs, texts = site.number(OPEN, before), site.number(WITHOUT_VECTOR, before, people)
        if not jobs and not texts:
            return
        if time.monotonic() > deadline:
            told = f"{jobs} jobs are open, {site.number(FAILED, before - PART)} failed, {texts} texts have no vector"
            raise SiteNotReady(f"After {CAUGHT_UP_SECONDS} s {told}.")
        time.sleep(0.5)


def count(site: Site, ledger: Ledger) -> Count:
    """Compare the ledger with the transcript, after waiting for rounds that are replayed."""
    deadline = time.monotonic() + REPLAY_SECONDS
    while True:
        found = ledger.count(site.turns())
        if not found.lost or time.monotonic() > deadline:
            return found
        time.sleep(1)


def settle(site: Site, ledger: Ledger, row: Row) -> None:
    """Add the numbers of acknowledged, lost and duplicated turns to a row."""
    turns = count(site, ledger)
    row.acknowledged, row.lost, row.doubled = turns.acknowledged, turns.lost, turns.doubled
    row.rounds, row.rounds_lost = turns.rounds, turns.rounds_lost
    if turns.rounds_lost:
        row.remark(f"{turns.rounds_lost} of {turns.rounds} chat rounds lost")


def work_lost_or_doubled(site: Site, row: Row, began: datetime) -> None:
    """Add to a row the jobs that failed since a time, and moments with overlapping turns."""
    failed, overlaps = site.number(FAILED, began), site.number(OVERLAPS)
    row.lost += failed
    row.doubled += overlaps
    if not_taken := site.number(NOT_TAKEN, began):
        row.never(f"{not_taken} answers of the models were rejected")
    if failed:
        row.remarks.append(f"{failed} jobs failed permanently")
    if overlaps:
        row.remarks.append(f"{overlaps} pairs of moments overlap")
