"""The folder in which the web processes of a server share what they count, by prometheus_client's multiprocess mode.

Each server has one of its own in `settings.FIGURES_DIR`, and removes those of servers that were killed. When it is
imported, prometheus_client decides by `VARIABLE` whether counts are shared. django-q2 imports it when the apps are
loaded, so the variable is set before.
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from memoryproject.process_tree import locked

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
LOCK = "lock"

_held: TextIO | None = None  # open until this process and all that it forks have ended


def make(parent: Path) -> None:
    """Make a folder for this process and its forks, and remove those whose processes have ended."""
    global _held
    parent.mkdir(parents=True, exist_ok=True)
    with (parent / LOCK).open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # or another server would remove a folder that isn't locked yet
        for lock in parent.glob(f"*/{LOCK}"):
            with suppress(FileNotFoundError), lock.open("r+") as file:
                if locked(file):
                    shutil.rmtree(lock.parent, ignore_errors=True)
        folder = tempfile.mkdtemp(dir=parent)
        _held = Path(folder, LOCK).open("w")  # noqa: SIM115
        locked(_held)
    os.environ[VARIABLE] = folder


def remove() -> None:
    """Remove the folder of this process."""
    shutil.rmtree(os.environ[VARIABLE], ignore_errors=True)
