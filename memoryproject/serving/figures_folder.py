"""The folder where the web processes of a server share their metrics (prometheus_client's multiprocess mode).

Each server has its own folder in `settings.FIGURES_DIR`, and removes the folders of killed servers. prometheus_client
reads `VARIABLE` when it is imported. django-q2 imports it while the apps are loaded, so the variable is set earlier.
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

_held: TextIO | None = None  # open until this process and all its forks have ended


def make(parent: Path) -> None:
    """Create a folder for this process and its forks, and remove the folders of processes that have ended."""
    global _held
    parent.mkdir(parents=True, exist_ok=True)
    with (parent / LOCK).open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # otherwise, another server could remove a folder before it is locked
        for lock in parent.glob(f"*/{LOCK}"):
            with suppress(FileNotFoundError), lock.open("r+") as file:
                if locked(file):
                    shutil.rmtree(lock.parent, ignore_errors=True)
        folder = tempfile.mkdtemp(dir=parent)
        _held = Path(folder, LOCK).open("w")  # noqa: SIM115
        locked(_held)
    os.environ[VARIABLE] = folder


def remove() -> None:
    shutil.rmtree(os.environ[VARIABLE], ignore_errors=True)
