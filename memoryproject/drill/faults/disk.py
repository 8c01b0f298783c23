"""A disk that takes no more of the database's files, as the limit on a file's size has it without any privilege."""

import resource
import time
from collections.abc import Iterator
from contextlib import suppress

import psutil

from memoryproject.drill.course import Course
from memoryproject.drill.faults.database import NOT_OURS
from memoryproject.drill.recovery import wait_until_well
from memoryproject.drill.report import Row, not_tried
from memoryproject.drill.site import Site

FULL_SECONDS = 5.0
FILE_BYTES = 1_000_000  # beyond which nothing is written: less than a file of the write-ahead log has
REFUSED = "File too large"  # what the database's log says of such a write
AGAIN = 0.05  # seconds after which processes that have come meanwhile are limited too
NAME = f"the database's disk is full for {FULL_SECONDS:.0f} s"


def full(course: Course) -> Iterator[Row]:
    """Have every write of the database fail for a while."""
    if not course.site.is_embedded or not hasattr(psutil.Process, "rlimit"):
        yield not_tried(NAME, NOT_OURS if not course.site.is_embedded else "the system has no such limit")
        return
    with course.fault(NAME) as fault:
        log = course.site.folder / "postgres" / "log"
        before = log.stat().st_size
        _fill(course.site)
        began = time.monotonic()
        wait_until_well(course.site, fault.ledger)
        fault.row.times = 1
        fault.row.seconds.append(time.monotonic() - began)
        with log.open(errors="replace") as file:
            file.seek(before)
            refused = file.read().count(REFUSED)
        fault.row.remark(f"by a limit on the size of its files; {refused} writes were refused")
    yield fault.row


def _fill(site: Site) -> None:
    deadline = time.monotonic() + FULL_SECONDS
    while time.monotonic() < deadline:
        _limit(site, FILE_BYTES)
        time.sleep(AGAIN)
    _limit(site, resource.RLIM_INFINITY)


def _limit(site: Site, size: int) -> None:
    for process in site.database():
        with suppress(psutil.Error, OSError, ValueError):
            _, most = process.rlimit(psutil.RLIMIT_FSIZE)
            process.rlimit(psutil.RLIMIT_FSIZE, (size, most))
