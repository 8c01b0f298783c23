"""Supervise one process tree per data directory.

The root locks the directory, restarts children that exit, and stops all of them when it stops.

The tree is crash-only: it needs no clean shutdown. The kernel releases the lock when the root dies, and kills children
when their parent dies. So if the root is killed, no process keeps serving with old settings.
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

# environment variable with the id of a child's parent process; if the parent dies, the child is killed
PARENT = "MEMORY_PARENT"
LOCK_FILE, MARK_FILE = "run.lock", "run.mark"
STOP_SECONDS = 30  # seconds that a child may take to exit
MAX_PAUSE = 30.0  # maximum seconds before a child that keeps dying is restarted
STEADY_SECONDS = 20  # minimum run time of a child; a death before that counts as a failed start
WAKE = signal.SIGURG  # tells the root to start idle children; other processes ignore this signal
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15  # prctl(2)
_FORK = multiprocessing.get_context("fork")


class DirectoryLocked(Exception):
    """Another process has locked the data directory. The message says which one, and since when."""


class CannotStart(Exception):
    """A child ended before the tree was ready, or the data directory can't be used. The message says which."""


@contextmanager
def lock_directory(directory: Path, *, patience: float = 0.0) -> Iterator[None]:
    """Lock a data directory, created if missing, until the block or the process ends.

    Args:
        patience: Seconds to wait for another process to release it.

    Raises:
        DirectoryLocked: Another process has locked it.
        CannotStart: It is not writable.
    """
    with _reporting_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        opened = (directory / LOCK_FILE).open("a+")
    with opened as file:
        deadline = time.monotonic() + patience
        while not try_lock(file):
            if time.monotonic() >= deadline:
                file.seek(0)
                raise DirectoryLocked(f"{directory} is in use by {file.read().strip() or 'another process'}.")
            time.sleep(0.1)
        with _reporting_errors(directory):
            file.truncate(0)
            file.write(_this_process())
            file.flush()
        yield


@contextmanager
def mark_in_use(directory: Path) -> Iterator[str]:
    """Mark a data directory, which this process has locked, as in use until the block ends.

    Yields:
        The process whose mark is still there, because it was killed or its machine stopped. Blank if there is none.

    Raises:
        CannotStart: It is not writable.
    """
    mark = directory / MARK_FILE
    with _reporting_errors(directory):
        left = mark.read_text() if mark.exists() else ""
        mark.write_text(_this_process())
    try:
        yield left
    finally:
        mark.unlink(missing_ok=True)


@contextmanager
def _reporting_errors(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CannotStart(f"DATA_DIR: {directory} can't be used: {error.strerror}.") from error


def _this_process() -> str:
    return f"process {os.getpid()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"


def try_lock(file: TextIO) -> bool:
    """Lock a file until this process and all its forks have closed it. Return False if it is already locked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def die_with_parent() -> None:
    """If a tree started this process, make the kernel kill it when its parent dies."""
    if os.environ.get(PARENT) == str(os.getppid()):
        die_with(os.getppid())


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Ask the kernel to signal this process when its parent dies. Exit if the parent is already dead.

    Args:
        parent: The parent's process id, read before this process was forked.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def treat_sigterm_as_ctrl_c() -> None:
    """Make SIGTERM raise `KeyboardInterrupt`, like Ctrl-C, in the root of a tree."""
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.default_int_handler)


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block SIGINT and SIGTERM in this thread, and in processes that it starts, while the block runs."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def signals_as_bytes() -> Iterator[int]:
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


def set_process_name(name: str) -> None:
    """Set the name of this process in process lists. The kernel stores 15 characters."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def free_unused_memory() -> None:
    """Return freed memory to the kernel, if the C library supports it. By default, the library keeps much of it."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class Fork:
    """A child process that calls a function. It is forked from the root, which must have no threads or connections.

    Args:
        name: The name in messages, such as "The web server".
        parent_death_signal: The signal that the child receives when its root dies.
        is_required: Whether the tree needs the child to be ready.
        exits_when_idle: Whether the child exits with status 0 when it has no work. `WAKE` restarts it.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[], None],
        *,
        parent_death_signal: int = signal.SIGKILL,
        is_required: bool = True,
        exits_when_idle: bool = False,
    ) -> None:
        self.name, self.is_required, self.exits_when_idle = name, is_required, exits_when_idle
        self._function, self._parent_death_signal = function, parent_death_signal
        self.was_started = False
        self.is_woken = False  # whether the root received `WAKE` since the child was started
        self.due_at = 0.0
        self._started_at = 0.0
        self._deaths = 0  # consecutive deaths

    @property
    def pid(self) -> int:
        assert self._process.pid is not None  # set by `start`
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, seconds: float) -> None:
        self._process.join(seconds)

    def start(self) -> None:
        """Start the child in its own session, so Ctrl-C reaches only the root."""
        arguments = self._function, os.getpid(), self._parent_death_signal
        self._process = _FORK.Process(target=_run, args=arguments, name=self.name)
        with interrupts_blocked():  # Python ignores exceptions in callbacks of `fork`
            self._process.start()
            self.was_started, self.is_woken, self._started_at = True, False, time.monotonic()

    @property
    def is_alive(self) -> bool:
        return self.was_started and self.poll() is None

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    @property
    def exited_when_idle(self) -> bool:
        return self.exits_when_idle and self.was_started and self.poll() == 0

    def record_death(self) -> None:
        """Count a death, and schedule the restart: immediately the first time, with increasing pauses after that."""
        steady = time.monotonic() - self._started_at > STEADY_SECONDS
        self._deaths = 1 if steady else self._deaths + 1
        pause = 0.0 if self._deaths == 1 else min(2.0 ** (self._deaths - 2), MAX_PAUSE)
        self.was_started, self.due_at = False, time.monotonic() + pause


def _run(function: Callable[[], None], parent: int, parent_death_signal: int = signal.SIGKILL) -> None:
    signal.set_wakeup_fd(-1)
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(name, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    die_with(parent, parent_death_signal)
    os.setsid()
    set_process_name(multiprocessing.current_process().name)
    function()


def run_detached(function: Callable[[], None]) -> None:
    """Call a function in a new process, without waiting for it. The caller must have no threads or connections."""
    with interrupts_blocked():
        _FORK.Process(target=_run, args=(function, os.getpid()), daemon=True).start()


def run_in_fork(function: Callable[[], T]) -> T:
    """Call a function in a fork, and return its result. The fork's memory is freed when it exits.

    If the calling process is interrupted or dies, the function gets a `KeyboardInterrupt`. The caller must have no
    threads.

    Raises:
        CannotStart: The fork was killed.
        Exception: Any exception of the function.
    """
    reading, writing = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_send_result, args=(function, writing, os.getpid()))
    try:
        with interrupts_blocked():  # until the fork handles interrupts itself
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
    """Interrupt a fork, and wait for it to exit. Kill it if this process is interrupted again."""
    if process.pid is None:
        return
    process.terminate()
    with suppress(KeyboardInterrupt):
        process.join()
    process.kill()
    process.join()


def _send_result(function: Callable[[], T], writing: Connection, parent: int) -> None:
    treat_sigterm_as_ctrl_c()
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
    """Starts child processes in order, keeps them running, and stops them in reverse order.

    Args:
        notify: Called with a sentence for each child that died.
    """

    def __init__(self, children: Sequence[Fork], notify: Callable[[str], None]) -> None:
        self.children = list(children)
        self._notify = notify

    def start(self) -> None:
        for child in self.children:
            child.start()

    def check_started(self) -> None:
        """Raise `CannotStart` if a required child has exited. Call this until the tree is ready."""
        for child in self.children:
            if child.is_required and not child.is_alive and not child.exited_when_idle:
                raise CannotStart(f"{child.name} did not start (status {child.poll()}).")

    def run_until_interrupted(self) -> None:
        """Keep the children running until Ctrl-C, which raises `KeyboardInterrupt`."""
        for number in (signal.SIGCHLD, WAKE):
            signal.signal(number, lambda *_: None)  # an ignored signal would not end the wait
        with signals_as_bytes() as signals:
            while True:
                self.supervise()
                select.select([signals], [], [], self._pause())
                with suppress(BlockingIOError):
                    if WAKE in os.read(signals, 1024):
                        self.wake()

    def wake(self) -> None:
        """Mark all children, so that `supervise` starts the idle ones.

        Running children are marked too, because a child that is about to exit may have missed the new work.
        """
        for child in self.children:
            child.is_woken = True

    def _pause(self) -> float | None:
        due = [child.due_at for child in self.children if not child.was_started]
        return max(min(due) - time.monotonic(), 0.0) if due else None

    def supervise(self) -> None:
        """Reap exited processes. Restart dead children that are due, and resting ones that were woken."""
        multiprocessing.active_children()  # reaps processes started by `run_detached`
        for child in self.children:
            if child.exited_when_idle:
                if child.is_woken:
                    child.start()
                continue
            if child.was_started and not child.is_alive:
                status = child.poll()
                child.record_death()
                self._notify(f"{child.name} exited with status {status} and is being restarted.")
            if not child.was_started and time.monotonic() >= child.due_at:
                child.start()

    def stop(self) -> None:
        """Ask the children to exit, last first. Kill them after `STOP_SECONDS`, or at a second Ctrl-C."""
        living = [child for child in reversed(self.children) if child.is_alive]
        with suppress(KeyboardInterrupt):
            for child in living:
                child.signal(signal.SIGTERM)
            deadline = time.monotonic() + STOP_SECONDS
            for child in living:
                child.wait(max(deadline - time.monotonic(), 0.1))
        for child in living:
            if child.is_alive:
                child.signal(signal.SIGKILL)  # its own children die with it
                child.wait(STOP_SECONDS)
