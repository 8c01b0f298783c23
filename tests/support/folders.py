"""Folders that a database server can live in."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from memoryproject.conf import BASE_DIR
from memoryproject.embedded import server

RUN = "MEMORY_TEST_RUN"  # in the environment: what tells this run of the tests from others


@contextmanager
def data_folder() -> Iterator[Path]:
    """A DATA_DIR; its server is stopped afterwards.

    Not one of pytest's: each run of pytest that begins closes the folder of all runs to other users, and run as root
    the server is one of them.
    """
    with tempfile.TemporaryDirectory(prefix="memory-test-") as folder:
        try:
            yield Path(folder)
        finally:
            server.stop(Path(folder) / "postgres")


@cache
def migrated() -> Path:
    """Return a DATA_DIR as `manage.py migrate` leaves it, to be copied: making one takes longer than most tests.

    The processes of a run share it: who needs it first makes it, while others wait.
    """
    folder = _shared()
    with folder.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not folder.exists():
            _make(folder)
    return folder


def forget_migrated() -> None:
    """Remove it, at the end of the run."""
    shutil.rmtree(_shared(), ignore_errors=True)
    _shared().with_suffix(".lock").unlink(missing_ok=True)


def _shared() -> Path:
    return Path(tempfile.gettempdir()) / f"memory-migrated-{os.environ[RUN]}"


def _make(folder: Path) -> None:
    """Make it under another name first: what bears its own is whole."""
    unfinished = Path(tempfile.mkdtemp(prefix="memory-test-"))
    own = {"DATA_DIR": str(unfinished), "DATABASE_URL": ""}
    command = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
    try:
        subprocess.run(command, cwd=BASE_DIR, env=os.environ | own, check=True)
    finally:
        server.stop(unfinished / "postgres")
    with (unfinished / "postgres/postgresql.conf").open("a") as file:
        file.write("fsync = off\n")  # the machine doesn't crash, only processes do
    unfinished.rename(folder)


@contextmanager
def migrated_folder() -> Iterator[Path]:
    """A DATA_DIR with all tables."""
    with data_folder() as folder:
        # With its owner, because PostgreSQL doesn't start on files of another.
        subprocess.run(["cp", "-a", f"{migrated()}/.", folder], check=True)
        yield folder
