"""The spool: a file for each round that is not in the transcript yet. The file remains if the process dies.

The process that answers a round locks the file. When the process ends, the lock is released. A file without a lock is
an orphan: another process stores its round. Each line is a JSON record. A truncated line is ignored. The files are in
`DATA_DIR/spool` and readable only by their owner. Their names sort by age, and identify the person and session.
"""

import errno
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import structlog
from django.conf import settings

from sessions_app.models.application import DEFAULT

CLAIMED = ".taken"  # the suffix of a file's name once a process starts to store its round
EMPTY_FILE_SECONDS = 60  # minimum age of a file without a record before it is removed

logger = structlog.get_logger(__name__)


class Spool:
    """The file of a round, locked by this process."""

    def __init__(self, path: Path, file: int) -> None:
        self._path, self._file = path, file
        self.is_whole = True

    @classmethod
    def create(cls, user_id: str, session_id: str, record: dict[str, Any], *, application: int) -> Self:
        """Create the file of a round, with its first record. Raise OSError if that fails."""
        folder: Path = settings.SPOOL_DIR
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"{time.time_ns():020d}-{_session_key(user_id, session_id, application)}-{os.urandom(4).hex()}"
        spool = cls(path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600))
        fcntl.flock(spool._file, fcntl.LOCK_EX)
        spool.add(record)
        return spool

    def add(self, record: dict[str, Any]) -> None:
        """Add a record. If this fails, `is_whole` becomes False."""
        if not self.is_whole:
            return
        try:
            self._write(record)
        except OSError as error:
            self._give_up(error)

    def _write(self, record: dict[str, Any]) -> None:
        line = json.dumps(record).encode() + b"\n"
        if os.write(self._file, line) != len(line):
            raise OSError(errno.ENOSPC, "The disk is full.")

    def sync(self) -> None:
        if not self.is_whole:
            return
        try:
            os.fsync(self._file)
            _sync_folder(self._path.parent)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.is_whole = False
        logger.error("the spool can't be written", error=os.strerror(error.errno or 0))

    def release(self) -> None:
        """Release the file as an orphan."""
        os.close(self._file)

    def discard(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._file)


def orphans() -> list[Path]:
    """Return the files that no process has locked, oldest first."""
    return [path for path in _files("-") if _is_orphan(path)]


def unstored_files(user_id: str, session_id: str, application: int) -> list[Path]:
    """Return a session's orphans, and the files that another process is storing, oldest first."""
    return [
        path for path in _files(f"-{_session_key(user_id, session_id, application)}-") if not _is_held_by_creator(path)
    ]


def session_of(path: Path) -> str:
    return "-".join(path.name.split("-")[1:3])


def orphan_count() -> int:
    """Return the number of this host's orphans that no process is storing yet."""
    return len(orphans())


@contextmanager
def claimed(path: Path, *, patiently: bool = False) -> Iterator[list[dict[str, Any]] | None]:
    """Lock an orphan for the block, and yield its records. If the block ends without an exception, remove the file.

    Yield None if another process has locked the file, or if it no longer exists. `patiently`: whether to wait for the
    other process instead.
    """
    path = _mark_claimed(path)
    try:
        file = path.open("rb")
    except FileNotFoundError:
        yield None
        return
    with file:
        if not _locked(file.fileno(), fcntl.LOCK_EX, wait=patiently) or not _is_same_file(path, file.fileno()):
            yield None
            return
        records = [json.loads(line) for line in file.read().split(b"\n")[:-1]]
        is_old = time.time() - os.fstat(file.fileno()).st_mtime > EMPTY_FILE_SECONDS
        yield records or None
        if records or is_old:
            path.unlink(missing_ok=True)


def _mark_claimed(path: Path) -> Path:
    """Mark an orphan as being stored. Return its new path.

    An orphan is marked before it is locked. So if a file without the mark is locked, the process that created it has
    locked it.
    """
    marked = path.with_name(path.name.removesuffix(CLAIMED) + CLAIMED)
    if path != marked and _is_orphan(path):
        with suppress(FileNotFoundError):
            path.rename(marked)
    return marked


def remove_person(user_id: str, application: int) -> None:
    """Remove all spooled files of a person, including those in use."""
    for path in _files(f"-{_person_key(user_id, application)}-"):
        path.unlink(missing_ok=True)


def _files(part: str) -> list[Path]:
    folder: Path = settings.SPOOL_DIR
    try:
        return sorted(path for path in folder.iterdir() if part in path.name)
    except FileNotFoundError:
        return []


def _is_orphan(path: Path) -> bool:
    with suppress(FileNotFoundError), path.open("rb") as file:
        return _locked(file.fileno(), fcntl.LOCK_SH)
    return False


def _is_held_by_creator(path: Path) -> bool:
    """Return whether the process that created a file still holds it.

    If the file is missing, return False: it may have just been marked.
    """
    return not path.name.endswith(CLAIMED) and not _is_orphan(path) and path.exists()


def _locked(file: int, kind: int, *, wait: bool = False) -> bool:
    try:
        fcntl.flock(file, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_same_file(path: Path, file: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(file))
    return False


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _session_key(user_id: str, session_id: str, application: int) -> str:
    return f"{_person_key(user_id, application)}-{_digest(session_id)}"


def _person_key(user_id: str, application: int) -> str:
    """Return the id of a person in file names: a hash that includes the application, unless it is the first one."""
    return _digest(user_id if application == DEFAULT else f"{application}\0{user_id}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
