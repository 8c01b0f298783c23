"""Identify the process that works on a job, and check whether it has ended.

A process id alone is ambiguous: another machine or container may have the same id, and the kernel reuses ids. So a
process's name also includes its place and start time. Only processes of the same machine can be checked. Jobs of other
processes are taken over when their heartbeats stop.
"""

import os
import socket
from functools import cache
from pathlib import Path

_PROC = Path("/proc")
_ENDED = frozenset("ZX")  # states of processes that have ended but still have an entry


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
