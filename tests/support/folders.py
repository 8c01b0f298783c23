"""Data folders for a database server."""

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
from memoryproject.database import embedded

RUN = "MEMORY_TEST_RUN"  # environment variable with the id of this test run


@contextmanager
def data_folder() -> Iterator[Path]:
    """Yield a DATA_DIR. Its server is stopped afterward.

    It is not a folder of pytest's: each run of pytest makes the parent folder inaccessible to other users and, if the
    tests run as root, the server runs as another user.
    """
    with tempfile.TemporaryDirectory(prefix="memory-test-") as folder:
        try:
            yield Path(folder)
        finally:
            embedded.stop(Path(folder) / "postgres")


@cache
def migrated() -> Path:
    """Return a DATA_DIR after `manage.py migrate`, to be copied, because creating one takes longer than most tests.

    The processes of a run share it. The first one creates it, while others wait.
    """
    folder = _shared()
    with folder.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not folder.exists():
            _make(folder)
    return folder


def forget_migrated() -> None:
    """Remove it at the end of the run."""
    shutil.rmtree(_shared(), ignore_errors=True)
    _shared().with_suffix(".lock").unlink(missing_ok=True)


def _shared() -> Path:
    return Path(tempfile.gettempdir()) / f"memory-migrated-{os.environ[RUN]}"


def _make(folder: Path) -> None:
    """Create it under another name first, so its real name shows that it is complete."""
    unfinished = Path(tempfile.mkdtemp(prefix="memory-test-"))
    own = {"DATA_DIR": str(unfinished), "DATABASE_URL": ""}
    command = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
    try:
        subprocess.run(command, cwd=BASE_DIR, env=os.environ | own, check=True)
    finally:
        embedded.stop(unfinished / "postgres")
    with (unfinished / "postgres/postgresql.conf").open("a") as file:
        file.write("fsync = off\n")  # only processes crash here, not the machine
    unfinished.rename(folder)


@contextmanager
def migrated_folder() -> Iterator[Path]:
    """Yield a DATA_DIR with all tables."""
    with data_folder() as folder:
        # Copied with its owner, because PostgreSQL doesn't start on another user's files.
        subprocess.run(["cp", "-a", f"{migrated()}/.", folder], check=True)
        yield folder
