"""The spool: a file for each round that is on its way into the transcript, so that a process may die with it.

The process at work holds a lock on the file, which goes with the process; a file without one is an orphan, whose round
somebody else has to store. A line of a file is a record in JSON; a line that was cut short doesn't count. Files lie in
`DATA_DIR/spool`, only their owner can read them, and their names sort by age and tell person and session apart.
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

TAKEN = ".taken"  # the end of a file's name once somebody has come to store its round
UNBEGUN_SECONDS = 60  # after which a file without a record was left by a process that died

logger = structlog.get_logger(__name__)


class Spool:
    """The file of a round, locked by this process.

    Args:
        path: of the file.
        file: its descriptor.
    """

    def __init__(self, path: Path, file: int) -> None:
        self._path, self._file = path, file
        self.is_whole = True

    @classmethod
    def create(cls, user_id: str, session_id: str, record: dict[str, Any], *, application: int) -> Self:
        """Make the file of a round.

        Args:
            user_id, session_id, application: whose it is.
            record: the first.

        Raises:
            OSError: it can't be made.
        """
        folder: Path = settings.SPOOL_DIR
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"{time.time_ns():020d}-{_session(user_id, session_id, application)}-{os.urandom(4).hex()}"
        spool = cls(path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600))
        fcntl.flock(spool._file, fcntl.LOCK_EX)
        spool.add(record)
        return spool

    def add(self, record: dict[str, Any]) -> None:
        """Add a record; after a failure the file counts no more."""
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
        """Have the disk keep what was written."""
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

    def leave(self) -> None:
        """Leave the round to whoever stores orphans."""
        os.close(self._file)

    def discard(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)
        os.close(self._file)


def orphans() -> list[Path]:
    """Return the files whose process is gone or has left them, oldest first."""
    return [path for path in _files("-") if _is_left(path)]


def left_of(user_id: str, session_id: str, application: int) -> list[Path]:
    """Return the files of a session that are orphans, or are being stored by somebody else; oldest first."""
    return [path for path in _files(f"-{_session(user_id, session_id, application)}-") if not _is_at_work(path)]


def session_of(path: Path) -> str:
    """Return what the names of all files of a session have in common, and no others."""
    return "-".join(path.name.split("-")[1:3])


def waiting() -> int:
    """Return how many rounds of this host wait to be stored, not counting those that somebody is at work on."""
    return len(orphans())


@contextmanager
def claimed(path: Path, *, patiently: bool = False) -> Iterator[list[dict[str, Any]] | None]:
    """Hold an orphan and give its records; None when another process holds it or it is gone.

    The file is removed when the block ends without an exception.

    Args:
        path: of the file.
        patiently: wait for whoever is storing it already.
    """
    path = _taken(path)
    try:
        file = path.open("rb")
    except FileNotFoundError:
        yield None
        return
    with file:
        if not _locked(file.fileno(), fcntl.LOCK_EX, wait=patiently) or not _is_at(path, file.fileno()):
            yield None
            return
        records = [json.loads(line) for line in file.read().split(b"\n")[:-1]]
        is_old = time.time() - os.fstat(file.fileno()).st_mtime > UNBEGUN_SECONDS
        yield records or None
        if records or is_old:
            path.unlink(missing_ok=True)


def _taken(path: Path) -> Path:
    """Mark an orphan as one that somebody has come to store, unless another has; return its path from then on.

    It is marked before it is locked, so that a locked file without the mark is at work always.
    """
    taken = path.with_name(path.name.removesuffix(TAKEN) + TAKEN)
    if path != taken and _is_left(path):
        with suppress(FileNotFoundError):
            path.rename(taken)
    return taken


def forget(user_id: str, application: int) -> None:
    """Remove all that is spooled of a person, under way or not."""
    for path in _files(f"-{_person(user_id, application)}-"):
        path.unlink(missing_ok=True)


def _files(part: str) -> list[Path]:
    folder: Path = settings.SPOOL_DIR
    try:
        return sorted(path for path in folder.iterdir() if part in path.name)
    except FileNotFoundError:
        return []


def _is_left(path: Path) -> bool:
    with suppress(FileNotFoundError), path.open("rb") as file:
        return _locked(file.fileno(), fcntl.LOCK_SH)
    return False


def _is_at_work(path: Path) -> bool:
    """Return True if the process that made a file holds it. One that is gone by now may just have been marked."""
    return not path.name.endswith(TAKEN) and not _is_left(path) and path.exists()


def _locked(file: int, kind: int, *, wait: bool = False) -> bool:
    try:
        fcntl.flock(file, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, file: int) -> bool:
    """Return True if a file that was opened is still the one at its path."""
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(file))
    return False


def _sync_folder(folder: Path) -> None:
    """Have the disk keep the names of files."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _session(user_id: str, session_id: str, application: int) -> str:
    return f"{_person(user_id, application)}-{_digest(session_id)}"


def _person(user_id: str, application: int) -> str:
    """Return what files of a person are named by; in the first application as before there were others."""
    return _digest(user_id if application == DEFAULT else f"{application}\0{user_id}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
