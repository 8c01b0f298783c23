"""kill -9 of each kind of process. For half of the kills, the process's wait channel decides the moment."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import psutil

from drill.course import Course, Fault, FaultTracker
from drill.members import ROOT, any_alive, kinds, of_kind
from drill.recovery import CAUGHT_UP_SECONDS, READY_SECONDS, now, wait_until_ready
from drill.report import Row
from drill.site import Site, kill, wait_for
from drill.waits import Picker
from drill.watch import Watch

FOUND_SECONDS = 30  # maximum time to find a process of the kind
END_SECONDS = 30  # maximum time for all processes of a tree to end with their root
LEAVE_WORK_ALONE = ("web", "idle", "watch")  # in the name of a kind that runs no jobs

AT_WORK = "SELECT id FROM moments_app_job WHERE status = 'processing'"
STILL_OPEN = "SELECT count(*) FROM moments_app_job WHERE id = ANY(%s) AND status IN ('queued', 'processing')"
LAST_END = "SELECT max(finished_at) FROM moments_app_job WHERE id = ANY(%s)"


@dataclass(frozen=True)
class KillRecord:
    """A kill, and the jobs that were running.

    Args:
        fault: The fault of the kill.
        at: The time of the kill.
        seconds: The time until the site was ready. The jobs may have taken longer.
        jobs: The running jobs, which this kill or later ones may have interrupted.
    """

    fault: Fault
    at: datetime
    seconds: float
    jobs: list[int]


def each_kind(course: Course) -> Iterator[Row]:
    """Kill each kind of process as often as configured, one kind after the other, in rounds."""
    faults = {kind: Fault(Row(f"kill -9: {kind}")) for kind in kinds(course.site)}
    work = Fault(Row("jobs running during a kill"))
    pickers = {kind: Picker(course.chance) for kind in faults}
    course.say(f"{course.kills} kills of each of {len(faults)} kinds of processes …")
    with course.with_clients([*faults.values(), work]) as tracker:
        killed = []
        for number in range(course.kills):
            for kind in course.chance.sample(list(faults), len(faults)):
                tracker.current = faults[kind]
                killed.append(kill_one(course, tracker, kind, pickers[kind], by_place=number % 2 == 0))
            course.say(f"  {len(killed)} kills, {sum(one.seconds for one in killed) / len(killed):.1f} s each")
        tracker.current = work
        work.row.times = len(killed)
        _wait_for_work(course.site, killed)
    for kind, fault in faults.items():
        fault.row.places = dict(pickers[kind].places)
        course.say(f"  {kind}: {fault.row.outcome()}")
    yield from (fault.row for fault in [*faults.values(), work])


def kill_one(course: Course, tracker: FaultTracker, kind: str, picker: Picker, *, by_place: bool) -> KillRecord:
    """Kill a process of a kind, and wait until the site is ready.

    Args:
        course: The drill.
        tracker: The current fault.
        kind: The kind of process.
        picker: Picks a process of the kind.
        by_place: Whether to choose the moment by the process's wait channel, instead of randomly.

    Raises:
        SiteNotReady: The site is not ready in time.
    """
    site, fault = course.site, tracker.current
    with Watch(site) as watch:
        victim, jobs = _picked(site, kind, picker, by_place=by_place)
        below, at, began = site.members(), now(), time.monotonic()
        kill(victim)
        fault.row.times += 1
        if kind == ROOT:
            _start_again(site, below)
        wait_for(f"another {kind}", lambda: _is_replaced(site, kind, victim), READY_SECONDS)
        wait_until_ready(site, fault.ledger)
        seconds = time.monotonic() - began
        fault.row.told = sorted({*fault.row.told, *watch.told()})
    return KillRecord(fault, at, seconds, jobs)


def _picked(site: Site, kind: str, picker: Picker, *, by_place: bool) -> tuple[psutil.Process, list[int]]:
    """Return a process to kill, and the running jobs. Skip processes that end in the meantime."""
    choose = picker.by_place if by_place else picker.at_random
    found: list[tuple[psutil.Process, list[int]]] = []

    def pick() -> bool:
        jobs = [] if any(name in kind for name in LEAVE_WORK_ALONE) else [int(pk) for (pk,) in site.rows(AT_WORK)]
        if victim := choose(lambda: of_kind(site, kind)):
            found.append((victim, jobs))
        return bool(found)

    wait_for(f"a process to kill: {kind}", pick, FOUND_SECONDS, pause=0.02)
    return found[0]


def _start_again(site: Site, below: list[psutil.Process]) -> None:
    """Restart a site whose root was killed, after all its processes have ended."""
    wait_for("the tree to end with its root", lambda: site.has_ended and not any_alive(below), END_SECONDS)
    site.start()


def _is_replaced(site: Site, kind: str, victim: psutil.Process) -> bool:
    """Return whether the victim is gone and, for kinds that always run, another process has replaced it."""
    comes_and_goes = "worker" in kind or "client" in kind
    others = [process for process in of_kind(site, kind) if process.pid != victim.pid]
    return not victim.is_running() and (comes_and_goes or bool(others))


def _wait_for_work(site: Site, killed: list[KillRecord]) -> None:
    """Wait for the jobs that were running at the kills, and record for each kill when all was complete."""
    jobs = sorted({pk for one in killed for pk in one.jobs})
    wait_for("the jobs under way at the kills", lambda: not site.number(STILL_OPEN, jobs), CAUGHT_UP_SECONDS, pause=0.5)
    for one in killed:
        [[ended]] = site.rows(LAST_END, one.jobs)
        work = (ended - one.at) if ended else timedelta()
        one.fault.row.seconds.append(max(one.seconds, work.total_seconds()))
