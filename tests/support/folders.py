"""Folders that a database server can live in."""

import atexit
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

from memoryproject.conf import BASE_DIR
from memoryproject.embedded import server


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
    """Return a DATA_DIR as `manage.py migrate` leaves it, to be copied: making one takes longer than most tests."""
    kept = ExitStack()
    atexit.register(kept.close)
    folder = kept.enter_context(data_folder())
    own = {"DATA_DIR": str(folder), "DATABASE_URL": ""}
    command = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
    subprocess.run(command, cwd=BASE_DIR, env=os.environ | own, check=True)
    server.stop(folder / "postgres")
    return folder


@contextmanager
def migrated_folder() -> Iterator[Path]:
    """A DATA_DIR with all tables."""
    with data_folder() as folder:
        # With its owner, because PostgreSQL doesn't start on files of another.
        subprocess.run(["cp", "-a", f"{migrated()}/.", folder], check=True)
        yield folder
