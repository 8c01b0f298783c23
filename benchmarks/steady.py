"""How punctual schedules and jobs are while 300 people write for half an hour: `python -m benchmarks.steady`.

The site has default settings. People take turns to send two messages from real conversations. Meanwhile, the
benchmark reads the queue and the last run of each schedule.
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, cycle, islice
from pathlib import Path
from threading import Event

from benchmarks.clients import Http
from benchmarks.conversations import read_folder
from benchmarks.figures import describe_machine, print_markdown
from benchmarks.lean import running_site
from benchmarks.site import SETTINGS, database_conninfo

CONVERSATIONS = Path(__file__).parent / "samples" / "conversations"
CLIENTS = 8
LOOK = 5  # seconds between two looks at the queue
TITLE = "Schedules and jobs under a steady load"
NOTE = (
    "Lateness: the longest time since the last run of a schedule, minus its interval. Open jobs: the highest number "
    "at any check."
)


@dataclass
class Seen:
    """The worst figures that were read from the queue.

    Args:
        late: The worst lateness in seconds, by schedule.
        jobs: The highest number of open jobs, by process.
        first_moment, first_settled: Seconds until the first moment was built, and until the first session was
            compacted.
    """

    late: dict[str, float] = field(default_factory=dict)
    jobs: Counter[str] = field(default_factory=Counter)
    first_moment: float | None = None
    first_settled: float | None = None

    def look(self, seconds: float) -> None:
        """Read the queue and the schedules.

        Args:
            seconds: The time since the start.
        """
        from django.db.models import Count

        from memoryproject.schedules import schedule_ages, schedules
        from moments_app.models import Job, Moment
        from sessions_app.models import Session

        timings = schedules()
        for name, age in schedule_ages().items():
            late = (age - timings[name].timing.interval).total_seconds()
            self.late[name] = max(self.late.get(name, 0.0), late)
        for process, number in Job.objects.open().values_list("process").annotate(number=Count("pk")):
            self.jobs[process] = max(self.jobs[process], number)
        if self.first_moment is None and Moment.objects.exists():
            self.first_moment = seconds
        if self.first_settled is None and Session.objects.filter(live_from_sequence__gt=0).exists():
            self.first_settled = seconds


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steady", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="duration of the load (30)")
    parser.add_argument("--people", type=int, default=300, help="number of people (300)")
    parser.add_argument("--turns", type=int, default=60_000, help="number of messages (60,000)")
    options = parser.parse_args(arguments)
    with running_site() as (folder, _pid, port, key):
        os.environ.update(SETTINGS, DATA_DIR=str(folder))
        import django

        django.setup()
        from django.db import connection

        print(describe_machine(database_conninfo()))
        seen, rate = put_under_load(port, key, options.people, options.turns, options.minutes * 60)
        connection.close()
    print_markdown(TITLE, ["", "worst"], list(_rows(seen, rate)), NOTE)
    return 0


def put_under_load(port: int, key: str, people: int, turns: int, seconds: float) -> tuple[Seen, float]:
    """Send messages at an even rate, and look at the queue meanwhile. Return what was seen, and the rate."""
    seen, started, ending = Seen(), time.monotonic(), Event()
    rounds = turns // 2
    with ThreadPoolExecutor(CLIENTS) as pool:
        sent = [
            pool.submit(_send, port, key, people, range(client, rounds, CLIENTS), started, seconds / rounds, ending)
            for client in range(CLIENTS)
        ]
        try:
            while not all(future.done() for future in sent):
                seen.look(time.monotonic() - started)
                time.sleep(LOOK)
        finally:
            ending.set()
    acknowledged = sum(future.result() for future in sent)
    return seen, 2 * acknowledged / (time.monotonic() - started)


def _send(port: int, key: str, people: int, rounds: range, started: float, pace: float, ending: Event) -> int:
    """Send some of the rounds, each at its time. Return how many were acknowledged."""
    texts = cycle([turn.text for one in read_folder(CONVERSATIONS) for _session, turn in one.turns])
    with closing(Http(port, key)) as http:
        for number in rounds:
            if ending.wait(max(0.0, started + number * pace - time.monotonic())):
                return rounds.index(number)
            person = f"person-{number % people}"
            messages = [
                {"role": role, "content": text, "external_id": f"{number}-{role}"}
                for role, text in zip(("user", "assistant"), islice(texts, 2), strict=True)
            ]
            http.request("POST", f"/api/v1/sessions/{person}/messages", {"user_id": person, "messages": messages})
    return len(rounds)


def _rows(seen: Seen, rate: float) -> Iterator[list[str]]:
    yield ["messages per second", f"{rate:.1f}"]
    for name, moment in (("first moment", seen.first_moment), ("first compaction", seen.first_settled)):
        yield [f"time until the {name}", "not seen" if moment is None else f"{moment:.0f} s"]
    late = ([f"lateness of `{name}`", f"{seconds:.0f} s"] for name, seconds in sorted(seen.late.items()))
    jobs = ([f"open jobs of `{process}`", f"{number:,}"] for process, number in sorted(seen.jobs.items()))
    yield from chain(late, jobs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
