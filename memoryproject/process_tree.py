"""One tree of processes a data directory: it is held by its root, dies with it, and what dies in it is started again.

Crash-only: nothing here needs a clean end. The lock on the directory is the kernel's and goes with the process that
holds it; a child is killed by the kernel when its parent is gone; so a root that was killed leaves nobody behind who
would serve on under old settings.
"""

import ctypes
import fcntl
import multiprocessing
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import TextIO, TypeVar, cast

T = TypeVar("T")

PARENT = "MEMORY_PARENT"  # in the environment of a child: the process it dies with
LOCK_FILE, MARK_FILE = "run.lock", "run.mark"
STOP_SECONDS = 30  # that a child may take to end
LONGEST_PAUSE = 30.0  # seconds before a child that dies at once is started again
STEADY_SECONDS = 20  # after which a child counts as well: it did not die of its start
WAKE = signal.SIGURG  # to the root: start the children that rest. Other processes ignore this signal
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15  # prctl(2)
_FORK = multiprocessing.get_context("fork")


class Held(Exception):
    """Another process holds the data directory; the message says which, and since when."""


class CannotStart(Exception):
    """A child ended before the tree was ready, or the data directory can't be used; the message names it."""


@contextmanager
def hold(directory: Path, *, patience: float = 0.0) -> Iterator[None]:
    """Hold a data directory until the block ends, or the process does.

    Args:
        directory: made when missing.
        patience: seconds to wait for whoever holds it.

    Raises:
        Held: another process holds it.
        CannotStart: it can't be written.
    """
    with _writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        opened = (directory / LOCK_FILE).open("a+")
    with opened as file:
        deadline = time.monotonic() + patience
        while not locked(file):
            if time.monotonic() >= deadline:
                file.seek(0)
                raise Held(f"{directory} is in use by {file.read().strip() or 'another process'}.")
            time.sleep(0.1)
        with _writing(directory):
            file.truncate(0)
            file.write(_who())
            file.flush()
        yield


@contextmanager
def marked(directory: Path) -> Iterator[str]:
    """Mark a data directory, which this process holds, as in use until the block ends.

    Yields:
        Who left a mark behind: a process that was killed, or whose machine stopped; blank if nobody did.

    Raises:
        CannotStart: it can't be written.
    """
    mark = directory / MARK_FILE
    with _writing(directory):
        left = mark.read_text() if mark.exists() else ""
        mark.write_text(_who())
    try:
        yield left
    finally:
        mark.unlink(missing_ok=True)


@contextmanager
def _writing(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CannotStart(f"DATA_DIR: {directory} can't be used: {error.strerror}.") from error


def _who() -> str:
    return f"process {os.getpid()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"


def locked(file: TextIO) -> bool:
    """Lock a file until this process and all that it forks have closed it; return False if others have it locked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies, if a tree started it; else do nothing."""
    if os.environ.get(PARENT) == str(os.getppid()):
        die_with(os.getppid())


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send a signal to this process when its parent dies; exit at once if it is dead already.

    Args:
        parent: process id of the parent, read before this process was forked.
        number: the signal.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def end_as_by_ctrl_c() -> None:
    """Have SIGTERM do what Ctrl-C does: raise `KeyboardInterrupt`, here in the root of a tree."""
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.default_int_handler)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Block SIGINT and SIGTERM in this thread, and in processes that it starts, inside a `with` block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def signals_as_bytes() -> Iterator[int]:
    """Yield a file descriptor that becomes readable when this process receives a signal, until the block ends."""
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(before)
        os.close(reading)
        os.close(writing)


def call_itself(name: str) -> None:
    """Have lists of processes show this one under a name, of which the kernel keeps 15 letters."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def free_unused_memory() -> None:
    """Return freed memory to the kernel, where the C library can. By itself, it keeps much of it."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class Fork:
    """A child that is a copy of its root and calls a function: it starts at once and shares the root's memory.

    The root must have neither threads nor connections.

    Args:
        name: as people call it: "The web server".
        function: called in the child, without arguments.
        dies_by: the signal that the child receives when its root dies.
        is_required: the tree isn't ready without it.
        may_rest: it ends with status 0 when there is nothing to do, and is started again after `WAKE`.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[], None],
        *,
        dies_by: int = signal.SIGKILL,
        is_required: bool = True,
        may_rest: bool = False,
    ) -> None:
        self.name, self.is_required, self.may_rest = name, is_required, may_rest
        self._function, self._dies_by = function, dies_by
        self.was_started = False
        self.is_wanted = False  # by `WAKE`, since it was started
        self.due_at = 0.0
        self._started_at = 0.0
        self._deaths = 0  # in a row

    @property
    def pid(self) -> int:
        assert self._process.pid is not None  # it was started
        return self._process.pid

    def poll(self) -> int | None:
        """Return the status it ended with; None while it runs."""
        return self._process.exitcode

    def wait(self, seconds: float) -> None:
        """Wait for its end, at most so long."""
        self._process.join(seconds)

    def start(self) -> None:
        """Start it, in a session of its own: Ctrl-C reaches the root alone."""
        arguments = self._function, os.getpid(), self._dies_by
        self._process = _FORK.Process(target=_run, args=arguments, name=self.name)
        self._process.start()
        self.was_started, self.is_wanted, self._started_at = True, False, time.monotonic()

    @property
    def is_alive(self) -> bool:
        return self.was_started and self.poll() is None

    def signal(self, number: int) -> None:
        """Send it a signal, if it is there."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    @property
    def rests(self) -> bool:
        """True if it has ended because there was nothing to do."""
        return self.may_rest and self.was_started and self.poll() == 0

    def note_death(self) -> None:
        """Count a death, and say when to start again: at once, later the more often it dies without having run."""
        steady = time.monotonic() - self._started_at > STEADY_SECONDS
        self._deaths = 1 if steady else self._deaths + 1
        pause = 0.0 if self._deaths == 1 else min(2.0 ** (self._deaths - 2), LONGEST_PAUSE)
        self.was_started, self.due_at = False, time.monotonic() + pause


def _run(function: Callable[[], None], parent: int, dies_by: int = signal.SIGKILL) -> None:
    signal.set_wakeup_fd(-1)
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(name, signal.SIG_DFL)
    die_with(parent, dies_by)
    os.setsid()
    call_itself(multiprocessing.current_process().name)
    function()


def apart(function: Callable[[], None]) -> None:
    """Call a function in a process of its own that nobody waits for, so that what it waits for keeps no tree.

    The caller must have neither threads nor connections.
    """
    _FORK.Process(target=_run, args=(function, os.getpid()), daemon=True).start()


def in_fork(function: Callable[[], T]) -> T:
    """Call a function in a fork, and return its result. The fork's memory is freed when it ends.

    If this process is interrupted or dies, `KeyboardInterrupt` is raised in the function. The caller must have no
    threads.

    Raises:
        CannotStart: the fork was killed.
        Exception: what the function raises.
    """
    reading, writing = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_send_result, args=(function, writing, os.getpid()))
    try:
        with uninterrupted():  # until the fork handles interrupts itself
            process.start()
            writing.close()
        result, error = reading.recv()
    except EOFError:
        result, error = None, CannotStart("The preparation of the database was interrupted.")
    except KeyboardInterrupt:
        _interrupt(process)
        raise
    process.join()
    if error:
        raise error
    return cast(T, result)


def _interrupt(process: ForkProcess) -> None:
    """Interrupt a fork, and wait for its end; kill it if this process is interrupted again."""
    if process.pid is None:
        return
    process.terminate()
    with suppress(KeyboardInterrupt):
        process.join()
    process.kill()
    process.join()


def _send_result(function: Callable[[], T], writing: Connection, parent: int) -> None:
    end_as_by_ctrl_c()
    die_with(parent, signal.SIGTERM)
    os.setsid()  # Ctrl-C reaches only the caller
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
        writing.send((function(), None))
    except KeyboardInterrupt:
        return
    except Exception as error:
        writing.send((None, error))


class Tree:
    """The children of this process, kept alive.

    Args:
        children: in the order in which they are started; they are ended the other way round.
        told: called with a sentence for each child that died.
    """

    def __init__(self, children: Sequence[Fork], told: Callable[[str], None]) -> None:
        self.children = list(children)
        self._told = told

    def start(self) -> None:
        """Start all children."""
        for child in self.children:
            child.start()

    def require(self) -> None:
        """Check that all required children live, before the tree is ready.

        Raises:
            CannotStart: one has ended; names it and its status.
        """
        for child in self.children:
            if child.is_required and not child.is_alive and not child.rests:
                raise CannotStart(f"{child.name} did not start (status {child.poll()}).")

    def keep_until_asked(self) -> None:
        """Look after the children until Ctrl-C, which is raised."""
        for number in (signal.SIGCHLD, WAKE):
            signal.signal(number, lambda *_: None)  # one that is ignored wakes nobody
        with signals_as_bytes() as signals:
            while True:
                self.keep()
                select.select([signals], [], [], self._pause())
                with suppress(BlockingIOError):
                    if WAKE in os.read(signals, 1024):
                        self.wake()

    def wake(self) -> None:
        """Have `keep` start the children that rest, and those that are about to: they may not have seen the work."""
        for child in self.children:
            child.is_wanted = True

    def _pause(self) -> float | None:
        """Return the seconds until a child is to be started; None if all are running."""
        due = [child.due_at for child in self.children if not child.was_started]
        return max(min(due) - time.monotonic(), 0.0) if due else None

    def keep(self) -> None:
        """Look after the children once: start again what died."""
        multiprocessing.active_children()  # buries what `apart` left
        for child in self.children:
            if child.rests:
                if child.is_wanted:
                    child.start()
                continue
            if child.was_started and not child.is_alive:
                status = child.poll()
                child.note_death()
                self._told(f"{child.name} exited with status {status} and is being restarted.")
            if not child.was_started and time.monotonic() >= child.due_at:
                child.start()

    def end(self) -> None:
        """Ask the children to end, last first; kill what doesn't within `STOP_SECONDS`, or at a second Ctrl-C."""
        living = [child for child in reversed(self.children) if child.is_alive]
        with suppress(KeyboardInterrupt):
            for child in living:
                child.signal(signal.SIGTERM)
            deadline = time.monotonic() + STOP_SECONDS
            for child in living:
                child.wait(max(deadline - time.monotonic(), 0.1))
        for child in living:
            if child.is_alive:
                child.signal(signal.SIGKILL)  # what it started itself dies with it
                child.wait(STOP_SECONDS)
