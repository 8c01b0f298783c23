"""Concurrent writers on one session, and the highest sustained rate of appends."""

import http.client
import itertools
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import quantiles

from drill.site import Site

TEXT = "We moved the studio to Turin in March, the kiln is due on the 4th, and Marta asked for the invoice again."
CLIENTS = 24
WRITERS, APPENDS = 32, 10
FIRST_RATE, FACTOR = 20.0, 1.4  # the first rate in appends per second, and the factor to the next rate
TRY_SECONDS = 8.0
HIGHEST_P99 = 1.0  # seconds
SHARE = 0.7  # share of the highest rate that passed a short test, to be tested for minutes
GAPS = """
SELECT COALESCE(max(sequence) + 1 - count(DISTINCT sequence), 0) FROM sessions_app_message message
JOIN sessions_app_session session ON session.id = message.session_id WHERE session.session_id = %s AND kind = 'turn'
"""
STORED = """
SELECT count(*) FROM sessions_app_message message JOIN sessions_app_session session ON session.id = message.session_id
WHERE session.session_id = %s AND kind = 'turn'
"""

Call = Callable[
    [http.client.HTTPConnection, int], bool
]  # makes a call as the client with this number; returns whether it succeeded


@dataclass
class LoadResult:
    """The result of a load.

    Args:
        rate: The calls per second.
        seconds: The duration.
        times: The response time of each call, measured from when it was due.
        errors: Unsuccessful responses.
    """

    rate: float
    seconds: float
    times: list[float] = field(default_factory=list)
    errors: int = 0

    @property
    def p99(self) -> float:
        return quantiles(self.times, n=100)[98] if len(self.times) > 1 else 0.0

    @property
    def is_held(self) -> bool:
        return not self.errors and self.p99 <= HIGHEST_P99


def gaps(site: Site) -> tuple[int, int]:
    """Append to one session with many concurrent writers.

    Returns:
        The number of writers, and the number of gaps and missing turns afterward.
    """
    threads = [threading.Thread(target=_append_some, args=(site, writer)) for writer in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    missing = WRITERS * APPENDS - site.number(STORED, "together")
    return WRITERS, abs(missing) + site.number(GAPS, "together")


def _append_some(site: Site, writer: int) -> None:
    for number in range(APPENDS):
        message = {"role": "user", "content": TEXT, "external_id": f"{writer}-{number}"}
        body = {"user_id": "many", "messages": [message]}
        while site.status("POST", "/api/v1/sessions/together/messages", body) not in (200, 201):
            time.sleep(0.2)


def highest(site: Site, keys: Sequence[str], seconds: float) -> LoadResult:
    """Find the highest load that passes a short test, and reduce it until it passes the long test."""
    good = FIRST_RATE

    def append(connection: http.client.HTTPConnection, client: int) -> bool:
        return _append(connection, keys[client % len(keys)], client)

    for rate in itertools.accumulate(itertools.repeat(FACTOR), lambda rate, factor: rate * factor, initial=FIRST_RATE):
        if not load(site, append, rate, TRY_SECONDS).is_held:
            break
        good = rate
    while True:
        good *= SHARE
        held = load(site, append, good, seconds)
        if held.is_held or good < 1:
            return held


def load(site: Site, call: Call, rate: float, seconds: float) -> LoadResult:
    """Call at a steady rate, independent of the responses. Measure each call from the time when it was due."""
    held, numbers, lock = LoadResult(rate, seconds), itertools.count(), threading.Lock()
    began = time.monotonic() + 0.5

    def work(client: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)
        while True:
            with lock:
                due = began + next(numbers) / rate
            if due > began + seconds:
                return connection.close()
            time.sleep(max(due - time.monotonic(), 0))
            is_well = call(connection, client)
            with lock:
                held.times.append(time.monotonic() - due)
                held.errors += not is_well

    threads = [threading.Thread(target=work, args=(client,)) for client in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return held


def _append(connection: http.client.HTTPConnection, key: str, client: int) -> bool:
    body = {"user_id": f"load-{client}", "messages": [{"role": "user", "content": TEXT}]}
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    try:
        connection.request("POST", f"/api/v1/sessions/load-{client}/messages", json.dumps(body), headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status == 201
    except (OSError, http.client.HTTPException):
        connection.close()
        return False
