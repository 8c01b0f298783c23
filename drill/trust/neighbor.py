"""A noisy neighbor: response times of one application while a read key of another one floods the site."""

import http.client
import json
import multiprocessing
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.synchronize import Event
from urllib.parse import urlencode

from drill.recovery import MATCHES_NOBODY, now, wait_until_caught_up
from drill.site import Site
from drill.trust.held import TEXT, LoadResult, load
from drill.trust.page import Figure

FLOODERS = 24  # concurrent searches
QUERY_CHARS = 1_000
RATE = 4.0  # calls per second of each kind, by the other application
SECONDS = 60.0
MAX_SLOWER = 2.0  # maximum p99 as a multiple of the p99 without the flood
TURNS, WORDS, WORDS_A_TURN, BATCH = 3_000, 6_000, 20, 200  # of the person whose memory is searched
SYLLABLES = [consonant + vowel for consonant in "bcdfghklmnprstvw" for vowel in "aeiou"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"
COUNT_WORDS = """
from moments_app.models import Job
from sessions_app.models import UserProfile
user = UserProfile.objects.get(user_id="flooded")
Job.objects.request("count_words", requested_by="trust", user_id=user.pk, force=True)
"""


@dataclass
class NeighborReport:
    """Response times of the other application.

    Args:
        alone, flooded: the times by kind of call, without and with the flood.
        refused: the number of responses to the flooder, by status.
    """

    alone: dict[str, LoadResult]
    flooded: dict[str, LoadResult]
    refused: Counter[int] = field(default_factory=Counter)

    @property
    def figures(self) -> list[Figure]:
        """A row for each kind of call."""
        searches = ", ".join(f"{count:,} × {status}" for status, count in sorted(self.refused.items()))
        return [
            (
                f"{kind}s of one application while another floods the site ({searches})",
                f"p99 {self.flooded[kind].p99 * 1000:.0f} ms; alone {alone.p99 * 1000:.0f} ms",
                f"{self.flooded[kind].errors} errors",
            )
            for kind, alone in self.alone.items()
        ]

    @property
    def remarks(self) -> list[str]:
        """What went wrong."""
        slow = [
            f"A {kind}'s p99 is more than {MAX_SLOWER:g} times as long while another application floods"
            for kind, alone in self.alone.items()
            if self.flooded[kind].p99 > MAX_SLOWER * alone.p99
        ]
        errors = sum(held.errors for held in (*self.alone.values(), *self.flooded.values()))
        return slow + ([f"{errors} calls failed during another application's flood"] if errors else [])


def disturb(site: Site, flooder: str, of_flooder: str, neighbor: str) -> NeighborReport:
    """Measure the calls of an application alone, and while another one floods.

    Args:
        site: The site that both use.
        flooder: A key of scope `read` of the flooding application.
        of_flooder: A key of scope `write` of the same application, to fill the searched memory.
        neighbor: A key of scope `write` of the other application.
    """
    _fill(site, of_flooder)
    site.manage("shell", "-v", "0", "-c", COUNT_WORDS)
    wait_until_caught_up(site, now(), MATCHES_NOBODY)
    _calls(site, neighbor, 3.0)  # warms up
    alone = _calls(site, neighbor, SECONDS)
    with _flood(site.port, flooder) as answers:
        flooded = _calls(site, neighbor, SECONDS)
    return NeighborReport(alone, flooded, answers)


def _fill(site: Site, key: str) -> None:
    chance = random.Random(1)
    words = ["".join(chance.choices(SYLLABLES, k=chance.choice((2, 2, 3, 3, 4)))) for _ in range(WORDS)]
    words = [word + chance.choice(("", chance.choice(LETTERS))) for word in words]
    weights = [1 / (place + 10) for place in range(WORDS)]
    for batch in range(TURNS // BATCH):
        said = [" ".join(chance.choices(words, weights, k=WORDS_A_TURN)) for _ in range(BATCH)]
        body = {"user_id": "flooded", "messages": [{"role": "user", "content": text} for text in said]}
        headers = {"Authorization": f"Bearer {key}"}
        path = f"/api/v1/sessions/flooded-{batch}/messages"
        status, told = site.request("POST", path, body, headers=headers)
        if status != 201:
            raise RuntimeError(f"{path} returned {status}: {told.decode()[:300]}")


def _calls(site: Site, key: str, seconds: float) -> dict[str, LoadResult]:
    """Append and request contexts in parallel, each at a steady rate."""
    kinds = {"append": _append, "context": _context}
    with ThreadPoolExecutor(len(kinds)) as threads:
        helds = threads.map(lambda call: load(site, partial(call, key), RATE, seconds), kinds.values())
        return dict(zip(kinds, helds, strict=True))


def _append(key: str, connection: http.client.HTTPConnection, number: int) -> bool:
    body = {"user_id": "neighbor", "messages": [{"role": "user", "content": TEXT}]}
    path = f"/api/v1/sessions/neighbor-{number % 8}/messages"
    return _status(connection, "POST", path, key, body) == 201


def _context(key: str, connection: http.client.HTTPConnection, number: int) -> bool:
    asked = {"user_id": "neighbor", "session_id": f"neighbor-{number % 8}", "query": "When is the kiln due?"}
    return _status(connection, "GET", f"/api/v1/memory/context?{urlencode(asked)}", key) == 200


def _status(connection: http.client.HTTPConnection, method: str, path: str, key: str, body: object = None) -> int:
    """Make a request. Return the status of its response, or 0 without one."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        connection.close()
        return 0
    else:
        return answer.status


@contextmanager
def _flood(port: int, key: str) -> Iterator[Counter[int]]:
    """Search as often as possible, in a separate process. Count its responses by status after the block."""
    answers: Counter[int] = Counter()
    processes = multiprocessing.get_context("spawn")
    ended, counted = processes.Event(), processes.SimpleQueue()
    flooder = processes.Process(target=_search_on, args=(port, key, ended, counted))
    flooder.start()
    try:
        yield answers
    finally:
        ended.set()
        answers.update(counted.get())
        flooder.join()


def _search_on(port: int, key: str, ended: Event, counted: "multiprocessing.SimpleQueue[Counter[int]]") -> None:
    def search(number: int) -> Counter[int]:
        chance, found = random.Random(number), Counter[int]()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while not ended.is_set():
            words = ("".join(chance.choices(LETTERS, k=5)) for _ in range(QUERY_CHARS // 6))
            body = {"user_id": "flooded", "query": " ".join(words)}
            found[_status(connection, "POST", "/api/v1/memory/search", key, body)] += 1
        return found

    with ThreadPoolExecutor(FLOODERS) as threads:
        counted.put(sum(threads.map(search, range(FLOODERS)), Counter[int]()))
