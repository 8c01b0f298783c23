"""`recover_jobs`: requeue running jobs whose worker died or stopped responding.

Recovery runs no job. It also restarts work that a process had started and that has no job, for example the next version
of a summary.

A process id alone is ambiguous: another machine or container may have the same id, and the kernel reuses ids. So the
name of a worker's process also includes its place and start time. Only processes of the same machine can be checked.
Jobs of other processes are taken over when their heartbeats stop.
"""

import os
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.conf import settings
from django.db import transaction

from moments_app.jobs.process import processes
from moments_app.models import Job

_PROC = Path("/proc")
_ENDED = frozenset("ZX")  # states of processes that have ended but still have an entry


@dataclass(frozen=True)
class Recovered:
    """The result of a recovery.

    Args:
        taken_over: the number of jobs taken from workers that died or stopped responding.
        given_up: the number of jobs that failed after too many attempts.
        begun_again: the number of times that a process restarted work without a job.
    """

    taken_over: int = 0
    given_up: int = 0
    begun_again: int = 0


@transaction.atomic
def recover_jobs(*, idle: str = "") -> Recovered:
    """Find running jobs without a live worker, and queue or fail them.

    Args:
        idle: the name of an idle worker: jobs that it seems to run were lost with its connection.
    """
    gone = [name for name in Job.objects.workers() if name == idle or is_gone(name)]
    stale = list(Job.objects.stale(gone).select_for_update(skip_locked=True))
    dead = [job for job in stale if job.attempts >= settings.JOBS.max_attempts]
    alive = [job for job in stale if job.attempts < settings.JOBS.max_attempts]
    begun_again = sum(process.recover() for process in processes())
    for job in dead:
        job.fail(f"The worker crashed or stopped responding {job.attempts} times.")
    for job in alive:
        job.release()
    return Recovered(len(alive), len(dead), begun_again)


def this_process() -> str:
    """Return the name of this process; blank if the kernel doesn't provide its parts."""
    return _name(os.getpid())


def is_gone(name: str) -> bool:
    """Return whether a process of this machine has ended.

    Args:
        name: the name of the process; the result is False for a blank name or one of another machine.
    """
    place, _, pid = name.rpartition(" ")[0].rpartition(" ")
    return bool(place) and place == _place() and _name(int(pid)) != name


def _name(pid: int) -> str:
    """Return the name of a process of this machine: place, id and start time; blank if it has ended."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    state, started = fields[0], fields[19]  # the third and the 22nd field in proc(5)
    return f"{_place()} {pid} {started}" if _place() and state not in _ENDED else ""


@cache
def _place() -> str:
    """Return the host's name with ids of its boot and its process namespace; blank if they are unavailable."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()} {boot} {(_PROC / 'self/ns/pid').stat().st_ino}"
    except OSError:
        return ""
