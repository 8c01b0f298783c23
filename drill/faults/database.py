"""A database that hangs, and one that restarts."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import psutil

from drill.course import Course, Fault
from drill.load import append
from drill.recovery import wait_until_ready
from drill.report import Row, not_tried
from drill.site import Site, wait_for
from drill.watch import Prober

HANG_SECONDS = 5.0
TIMES = 2
PERSON = "drill-prober"
DATABASE_NOT_EMBEDDED = "the database is not embedded, and others may use its server"


def hang(course: Course) -> Iterator[Row]:
    """Stop every database process for a while, and continue it."""
    yield _hurt(course, f"database hangs for {HANG_SECONDS:.0f} s", _hang)


def restart(course: Course) -> Iterator[Row]:
    """Shut the database down normally. The next process that needs it restarts it."""
    yield _hurt(course, "database restart", _restart)


def _hurt(course: Course, name: str, how: Callable[[Site], None]) -> Row:
    if not course.site.is_embedded:
        return not_tried(name, DATABASE_NOT_EMBEDDED)
    with course.fault(name) as fault:
        append(course.site, fault.ledger, PERSON)
        with Prober(course.site, PERSON) as prober:
            for _ in range(TIMES):
                how(course.site)
                _recover(course.site, fault)
        fault.row.probes = prober.seconds
        fault.row.remark(prober.refused())
    return fault.row


def _recover(site: Site, fault: Fault) -> None:
    began = time.monotonic()
    wait_until_ready(site, fault.ledger)
    fault.row.times += 1
    fault.row.seconds.append(time.monotonic() - began)


def _hang(site: Site) -> None:
    processes = site.database()
    _send(processes, signal.SIGSTOP)
    time.sleep(HANG_SECONDS)
    _send(processes, signal.SIGCONT)


def _restart(site: Site) -> None:
    [first, *_] = site.database()
    _send([first], signal.SIGINT)
    wait_for("the database to end", lambda: not first.is_running(), HANG_SECONDS * 10, pause=0.02)


def _send(processes: list[psutil.Process], number: int) -> None:
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)
