"""When a call is repeated, and how long one waits before."""

import random

import httpx2

NOTHING_DONE = {429, 503}  # the platform says so before it begins
UNKNOWN = {408, 500, 502, 504}  # something may have been done, so only what can be done twice is repeated
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 8.0  # seconds
PATIENCE = 30.0  # seconds: what is to be waited for longer, such as the next day, is the caller's to decide


def pause_before(attempt: int, response: httpx2.Response | None, *, repeatable: bool) -> float | None:
    """Return the seconds to wait before a call is repeated; None where it is not.

    Args:
        attempt: that came to nothing, from 0.
        response: what was answered; None for nothing.
        repeatable: the call can be carried out twice.
    """
    if response is None or response.status_code in UNKNOWN:
        return _growing(attempt) if repeatable else None
    if response.status_code in NOTHING_DONE:
        return _asked_for(response, _growing(attempt))
    return None


def _growing(attempt: int) -> float:
    """Return a pause that doubles, and differs so that many clients don't come back at once."""
    longest = min(FIRST_PAUSE * 2.0**attempt, LONGEST_PAUSE)
    return random.uniform(longest / 2, longest)  # noqa: S311 (no secret)


def _asked_for(response: httpx2.Response, otherwise: float) -> float | None:
    try:
        seconds = float(response.headers["Retry-After"])
    except (KeyError, ValueError):
        return otherwise
    return max(seconds, otherwise) if seconds <= PATIENCE else None
