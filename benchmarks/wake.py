"""Benchmark of waking: the time from the request of a job until a worker claims it."""

import threading
import time
from datetime import datetime

import psycopg

from benchmarks.clients import WORDS, Http
from benchmarks.figures import Figure
from benchmarks.site import Site
from moments_app.models import Job

JOBS = 50
ROUNDS = 4
PROCESS = "build_moments"
PAUSE = 0.1  # seconds, until the worker is idle again
START_TIMEOUT = 60
TITLE = "Wake a worker"
NOTE = (
    "The time from the insert of a job by a web process until an idle worker claims it: the commit, the notification "
    "and the claim. Raw: a committed NOTIFY by psycopg, until another connection has received it and has written a row."
)


def figures(site: Site) -> list[Figure]:
    http = Http(site.port, site.key)
    with site.working(), psycopg.connect(site.conninfo, autocommit=True) as sender:
        _compact(http, "first")
        _wait_until_claimed(START_TIMEOUT)
        ours, raw = [], []
        for number in range(ROUNDS):
            for job in range(JOBS):
                _compact(http, f"wake-{number}-{job}")
                time.sleep(PAUSE)
            _wait_until_claimed()
            jobs = Job.objects.filter(process=PROCESS).order_by("-id")[:JOBS]
            ours.append([(job.started_at - job.run_after).total_seconds() for job in jobs if job.started_at])
            with Receiver(site.conninfo) as receiver:
                raw.append([receiver.seconds_until_written(sender) for _ in range(JOBS)])
    times = sorted(seconds for part in ours for seconds in part)
    rate = f"p99 {times[len(times) * 99 // 100] * 1000:.0f} ms"
    return [Figure.of("a build, requested over HTTP", ours, raw, rate=rate)]


def _compact(http: Http, name: str) -> None:
    messages = [{"role": "user", "content": WORDS}]
    http.request("POST", f"/api/v1/sessions/{name}/messages", {"user_id": name, "messages": messages})
    http.request("POST", f"/api/v1/sessions/{name}/compact", {"user_id": name})


def _wait_until_claimed(seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while Job.objects.filter(process=PROCESS, started_at=None).exists():
        if time.monotonic() > end:
            raise TimeoutError(f"The worker did not claim all jobs within {seconds} seconds.")
        time.sleep(0.05)


class Receiver:
    """A thread that writes a row for each notification."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._written = threading.Event()

    def __enter__(self) -> "Receiver":
        self._connection = psycopg.connect(self._conninfo, autocommit=True)
        self._connection.execute("CREATE TEMPORARY TABLE woken (at timestamptz)")
        self._connection.execute("LISTEN benchmark")
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends = True
        self._thread.join()
        self._connection.close()

    _ends = False

    def _receive(self) -> None:
        while not self._ends:
            for _ in self._connection.notifies(timeout=0.2, stop_after=1):
                self._connection.execute("INSERT INTO woken VALUES (clock_timestamp())")
                self._written.set()

    def seconds_until_written(self, sender: "psycopg.Connection[tuple[datetime]]") -> float:
        """Send a notification, and return the seconds until the row is written."""
        self._written.clear()
        started = time.perf_counter()
        sender.execute("NOTIFY benchmark")
        self._written.wait(10)
        return time.perf_counter() - started
