"""Which process works on a job, and whether it is gone, as far as processes of the same machine can tell.

A process id alone says little: another machine or container has the same one, and the kernel gives it away again. So a
name has what tells these apart. Of a process elsewhere nobody here knows; its jobs are taken over when it is silent.
"""

import os
import socket
from functools import cache
from pathlib import Path

_PROC = Path("/proc")
_ENDED = frozenset("ZX")  # states of what has ended and is only not buried


def this_process() -> str:
    """Return the name of this process; blank where the kernel doesn't tell what is in it."""
    return _name(os.getpid())


def is_gone(name: str) -> bool:
    """Tell whether a process of this machine has ended.

    Args:
        name: as that process was named; of one elsewhere, or a blank one, the answer is no.
    """
    place, _, pid = name.rpartition(" ")[0].rpartition(" ")
    return bool(place) and place == _place() and _name(int(pid)) != name


def _name(pid: int) -> str:
    """Return the name of a process of this machine: where it is, its id, and when it was started; blank if it ended."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    state, started = fields[0], fields[19]  # of proc(5) the third and the 22nd
    return f"{_place()} {pid} {started}" if _place() and state not in _ENDED else ""


@cache
def _place() -> str:
    """Return the host's name, and what tells its starts and its containers apart; blank where nothing does."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()} {boot} {(_PROC / 'self/ns/pid').stat().st_ino}"
    except OSError:
        return ""
