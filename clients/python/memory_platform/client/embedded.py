"""An embedded site: `Memory("nora", embedded=True)` runs the whole platform on this machine while it is in use.

All clients of a folder share its site, even in several processes. Each holds a shared lock, which the kernel releases
when its process ends. A keeper, `python -m memory_platform.client.embedded`, runs the site, and stops it as soon as it
can get an exclusive lock.
"""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import httpx2

from memory_platform.client.errors import CannotStart

SERVER = "memoryproject"
USERS, SITE, KEY, LOG = "embedded.users", "embedded.site", "embedded.key", "embedded.log"
LOOK = 0.2  # seconds between two checks
START_SECONDS = 300  # timeout of a start
_private = partial(os.open, mode=0o600)  # opens files that only this account can read
_keepers: dict[Path, "subprocess.Popen[bytes]"] = {}  # started by this process


class Site:
    """A client's use of a folder's site. The first use starts the site, and the end of the last one stops it.

    Args:
        folder: The folder for the data. It is created if it is missing.

    Raises:
        CannotStart: The server is not installed.
    """

    def __init__(self, folder: Path) -> None:
        if find_spec(SERVER) is None:
            raise CannotStart(
                "embedded=True needs the server, which is not installed. In a clone of its repository, run "
                "pip install '.[embedded,embeddings]'."
            )
        self._folder = folder.resolve()
        self._turn = threading.Lock()
        self._end: weakref.finalize[..., Site] | None = None  # called at exit at the latest
        self._owner = 0  # the process that holds this object's lock

    def address(self) -> tuple[str, str]:
        """Return the URL and the key of the site. Start it if it isn't running.

        Raises:
            CannotStart: It exits before it is ready, or isn't ready in time.
        """
        with self._turn:
            if self._end and self._owner == os.getpid():
                return _address(self._folder)
            self._folder.mkdir(parents=True, exist_ok=True)
            users = (self._folder / USERS).open("a")
            try:
                fcntl.flock(users, fcntl.LOCK_SH)  # waits until a stopping site has ended
                address = _address(self._folder)
            except BaseException:
                users.close()
                raise
            # A forked process shares its parent's lock, and the parent may exit first, so the fork locks the file
            # again.
            self._owner = os.getpid()
            self._end = weakref.finalize(self, _leave, users, self._folder, self._owner)
            return address

    def close(self) -> None:
        """Stop the site, unless others use it."""
        with self._turn:
            if self._end:
                self._end()
                self._end = None


def _address(folder: Path) -> tuple[str, str]:
    """Return the URL and the key of the folder's site. Start it if it isn't running."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with (folder / SITE).open("a+") as site:
            if _locked(site):
                _start(folder, site, deadline)
            site.seek(0)
            if text := site.read():
                return str(json.loads(text)["url"]), (folder / KEY).read_text()
        time.sleep(LOOK)  # another process is starting it, or it is stopping
    raise CannotStart(f"The site did not start within {START_SECONDS} s; see {folder / LOG}.")


def _start(folder: Path, site: IO[str], deadline: float) -> None:
    """Start a keeper, and wait until the site is ready. Stop the keeper at the deadline.

    Args:
        folder: The site's folder.
        site: The locked file for the address. The keeper holds the lock as long as it lives.
        deadline: The deadline by the monotonic clock.
    """
    site.truncate(0)
    with open(folder / LOG, "a", opener=_private) as log:
        keeper = subprocess.Popen(  # noqa: S603 (our own program)
            [sys.executable, "-m", __name__, str(folder), str(site.fileno())],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[site.fileno()],
            start_new_session=True,  # Ctrl-C is only for this process
        )
    _keepers[folder] = keeper
    while not os.fstat(site.fileno()).st_size:
        if keeper.poll() is not None:
            raise CannotStart(_last_line(folder / LOG))
        if time.monotonic() > deadline:
            return keeper.terminate()
        time.sleep(LOOK)


def _leave(users: IO[str], folder: Path, owner: int) -> None:
    """Stop the site and wait until it has ended, unless others use it."""
    if os.getpid() != owner:
        return  # in a fork that exits, because it shares the parent's lock
    with users:
        try:
            if not _locked(users):
                fcntl.flock(users, fcntl.LOCK_SH)  # immediately if others use it, or else after it has stopped
                return
            with (folder / SITE).open() as site:
                if not _locked(site) and (text := site.read()):
                    os.kill(json.loads(text)["keeper"], signal.SIGTERM)
                    fcntl.flock(site, fcntl.LOCK_SH)
        finally:
            fcntl.flock(users, fcntl.LOCK_UN)  # otherwise, a fork that keeps running would hold it
    if keeper := _keepers.pop(folder, None):
        keeper.wait()


def _locked(file: IO[str]) -> bool:
    """Lock a file exclusively. Return False if others have locked it. A shared lock is released first."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _last_line(log: Path) -> str:
    """Return the last line of a log, which says why the program exited."""
    return (log.read_text().splitlines() or ["The embedded site did not start."])[-1]


# --- the keeper ---


def keep(folder: Path, site: IO[str]) -> int:
    """Run the site until no process uses it. Return the exit status.

    Args:
        folder: The folder with the data.
        site: The file for the address.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Use the folder's own database and address, whatever the environment says. The site dies with this process.
    own = {"DATA_DIR": str(folder), "DJANGO_SETTINGS_MODULE": f"{SERVER}.settings"}
    own |= {"ALLOWED_HOSTS": "127.0.0.1", "HTTPS": "false"}
    own |= dict.fromkeys(("DATABASE_URL", "WEB_DATABASE_URL", "WORKER_DATABASE_URL", "REPLICA_DATABASE_URL"), "")
    environment = os.environ | own | {"MEMORY_PARENT": str(os.getpid())}
    port = _free_port()
    run = subprocess.Popen(  # noqa: S603 (our own program)
        [sys.executable, "-m", SERVER, "run", "--no-demo", "--port", str(port)], env=environment
    )
    with (folder / USERS).open("a") as users:
        try:
            # One client for all requests, because each new one loads the certificates.
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
                if _serves(http, run):
                    _ensure_key(folder, http, environment)
                    json.dump({"url": f"http://127.0.0.1:{port}", "keeper": os.getpid()}, site)
                    site.flush()
            while run.poll() is None and not _locked(users):
                time.sleep(LOOK)
        except KeyboardInterrupt:
            pass
        finally:
            site.truncate(0)  # the address is no longer valid
            run.terminate()
            status = run.wait()
    return status


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _serves(http: httpx2.Client, run: "subprocess.Popen[bytes]") -> bool:
    """Wait until the site is ready. Return False if it exits before."""
    while run.poll() is None:
        with suppress(httpx2.RequestError):
            if http.get("/healthz").is_success:
                return True
        time.sleep(LOOK)
    return False


def _ensure_key(folder: Path, http: httpx2.Client, environment: dict[str, str]) -> None:
    """Create an API key, unless the folder has a valid one."""
    path = folder / KEY
    if path.exists() and (key := path.read_text()):
        known = {"Authorization": f"Bearer {key}"}
        if http.get("/api/v1/usage", headers=known).status_code != httpx2.codes.UNAUTHORIZED:
            return
    command = [sys.executable, "-m", SERVER, "create_api_key", "embedded", "--scope", "admin"]
    printed = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    whole = path.with_name(f"{KEY}.new")
    with open(whole, "w", opener=_private) as file:
        file.write(printed.stdout.split()[-1])
    whole.replace(path)


if __name__ == "__main__":
    with os.fdopen(int(sys.argv[2]), "w") as opened:
        sys.exit(keep(Path(sys.argv[1]), opened))
