"""A full disk of the database: a small file system or, without the right to mount one, a limit on file sizes."""

import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from drill.course import Course
from drill.faults.database import DATABASE_NOT_EMBEDDED
from drill.recovery import wait_until_ready
from drill.report import Row, not_tried
from drill.site import Site

FULL_SECONDS = 10.0
BYTES = 400_000_000  # of the small file system
BLOCK = bytes(1_000_000)
FILE_BYTES = 1_000_000  # maximum file size; smaller than a file of the write-ahead log
REFILL_SECONDS = 0.05  # seconds until freed space is filled again, and new processes are limited
REFUSED = ("No space left", "File too large")  # texts in the database's log about a failed write
NAME = f"database disk full for {FULL_SECONDS:.0f} s"


def full(course: Course) -> Iterator[Row]:
    """Make every write of the database fail for a while."""
    if not course.site.is_embedded:
        yield not_tried(NAME, DATABASE_NOT_EMBEDDED)
    elif _may_limit(course.site):
        yield _hurt(course, _limited)
    elif _may_mount(course.site.folder):
        with ExitStack() as stack, course.another_site(lambda site: stack.enter_context(_mounted(site))):
            yield _hurt(course, _filled)
    else:
        yield not_tried(NAME, "the drill can't mount a file system or limit the size of the database's files here")


def _hurt(course: Course, fill: Callable[[Site], None]) -> Row:
    with course.fault(NAME) as fault:
        log = course.site.folder / "postgres" / "log"
        before = log.stat().st_size
        fill(course.site)
        began = time.monotonic()
        wait_until_ready(course.site, fault.ledger)
        fault.row.times = 1
        fault.row.seconds.append(time.monotonic() - began)
        with log.open(errors="replace") as file:
            file.seek(before)
            text = file.read()
        fault.row.remark(f"{sum(map(text.count, REFUSED))} writes were refused")
    return fault.row


# --- a small file system ---


def _may_mount(folder: Path) -> bool:
    place = folder / "mount"
    place.mkdir()
    try:
        return _mount(place) and _unmount(place)
    finally:
        place.rmdir()


def _mount(place: Path) -> bool:
    return _succeeds("mount", "-t", "tmpfs", "-o", f"size={BYTES}", "drill", str(place))


def _unmount(place: Path) -> bool:
    return _succeeds("umount", "--lazy", str(place))


def _succeeds(*command: str) -> bool:
    path = shutil.which(command[0])
    return bool(path) and not subprocess.run([str(path), *command[1:]], capture_output=True, check=False).returncode  # noqa: S603 (the system's own)


@contextmanager
def _mounted(site: Site) -> Iterator[None]:
    """Put the database on its own small file system."""
    place = site.folder / "postgres"
    place.mkdir()
    _mount(place)
    try:
        yield
    finally:
        _unmount(place)
        shutil.rmtree(site.folder, ignore_errors=True)


def _filled(site: Site) -> None:
    ballast, deadline = site.folder / "postgres" / "ballast", time.monotonic() + FULL_SECONDS
    with ballast.open("wb", buffering=0) as file:
        while time.monotonic() < deadline:
            with suppress(OSError):
                while True:
                    file.write(BLOCK)
            time.sleep(REFILL_SECONDS)
    ballast.unlink()


# --- a limit on file sizes, which the owner of a process may set ---


def _may_limit(site: Site) -> bool:
    try:
        _limit(site, resource.RLIM_INFINITY)
    except (psutil.Error, AttributeError):
        return False
    return True


def _limited(site: Site) -> None:
    deadline = time.monotonic() + FULL_SECONDS
    while time.monotonic() < deadline:
        with suppress(psutil.Error):
            _limit(site, FILE_BYTES)
        time.sleep(REFILL_SECONDS)
    with suppress(psutil.Error):
        _limit(site, resource.RLIM_INFINITY)


def _limit(site: Site, size: int) -> None:
    for process in site.database():
        with suppress(psutil.NoSuchProcess):
            _, hard_limit = process.rlimit(psutil.RLIMIT_FSIZE)
            process.rlimit(psutil.RLIMIT_FSIZE, (size, hard_limit))
