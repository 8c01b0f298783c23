"""The conditions and pauses of retries."""

import random

import httpx2

NOTHING_DONE = {429, 503}  # the platform returns these before it executes a call
UNKNOWN = {408, 500, 502, 504}  # the call may have been executed, so only repeatable calls are retried
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 8.0  # seconds
PATIENCE = 30.0  # seconds; longer waits, such as until the next day, are left to the caller


def pause_before(attempt: int, response: httpx2.Response | None, *, repeatable: bool) -> float | None:
    """Return the seconds to wait before a retry, or None without one.

    Args:
        attempt: The number of the failed attempt, from 0.
        response: The response, or None.
        repeatable: Whether the call may be executed twice.
    """
    if response is None or response.status_code in UNKNOWN:
        return _growing(attempt) if repeatable else None
    if response.status_code in NOTHING_DONE:
        return _asked_for(response, _growing(attempt))
    return None


def _growing(attempt: int) -> float:
    """Return a pause that doubles with each attempt. It is random, so that clients don't all retry at once."""
    longest = min(FIRST_PAUSE * 2.0**attempt, LONGEST_PAUSE)
    return random.uniform(longest / 2, longest)  # noqa: S311 (no secret)


def _asked_for(response: httpx2.Response, otherwise: float) -> float | None:
    try:
        seconds = float(response.headers["Retry-After"])
    except (KeyError, ValueError):
        return otherwise
    return max(seconds, otherwise) if seconds <= PATIENCE else None
