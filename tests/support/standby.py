"""A second PostgreSQL server that streams from the test server."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Self

import psutil
import psycopg
from django.conf import settings
from django.db import connection, connections

from memory_extras.scale import replica
from memoryproject.database import embedded
from memoryproject.database.base import DatabaseWrapper


class Standby:
    """A hot standby of the embedded server. It exists while its `with` block runs.

    Attributes:
        socket: The folder of its socket.
    """

    def __enter__(self) -> Self:
        primary = settings.EMBEDDED_DATABASE_DIR
        socket, owner = embedded.ensure_running(primary), (primary / "PG_VERSION").stat()
        postmaster = int((primary / "postmaster.pid").read_text().split()[0])
        self._programs, self._owner = Path(psutil.Process(postmaster).exe()).parent, owner.st_uid
        self.socket = Path(tempfile.mkdtemp(prefix="memory-standby-"))  # separate from the folder that is copied
        os.chown(self.socket, owner.st_uid, owner.st_gid)
        self._data = str(self.socket / "postgres")
        # Otherwise, a checkpoint could remove what was written during the backup before the standby has received it.
        _alter_primary("SET wal_keep_size = '1GB'")
        self._run("pg_basebackup", "-h", str(socket), "-U", "postgres", "-D", self._data, "-R", "-c", "fast")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        _alter_primary("RESET wal_keep_size")
        shutil.rmtree(self.socket)

    def start(self) -> None:
        """Start it, and wait until it accepts connections."""
        options = f"-c listen_addresses='' -k {self.socket}"
        self._run("pg_ctl", "-D", self._data, "-l", str(self.socket / "log"), "-w", "-o", options, "start")

    def stop(self) -> None:
        """Stop it and disconnect its clients."""
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        nothing = subprocess.DEVNULL
        command = [str(self._programs / program), *arguments]
        subprocess.run(command, check=True, user=self._owner, cwd="/", stdin=nothing, stdout=nothing)


def _alter_primary(change: str) -> None:
    socket = embedded.ensure_running(settings.EMBEDDED_DATABASE_DIR)
    with psycopg.connect(f"host={socket} user=postgres dbname=postgres", autocommit=True) as primary:
        primary.execute(f"ALTER SYSTEM {change}".encode())
        primary.execute("SELECT pg_reload_conf()")


@contextmanager
def replica_at(folder: Path) -> Iterator[None]:
    """Use the standby as this test's replica, like `REPLICA_DATABASE_URL`."""
    there = deepcopy(connections[connection.alias].settings_dict)
    # Not in the configured databases, because Django would empty these after the test. With `EMBEDDED`, the connection
    # would ignore `HOST` and lead to the primary.
    connections[replica.ALIAS] = DatabaseWrapper(there | {"EMBEDDED": False, "HOST": str(folder)}, alias=replica.ALIAS)
    replica._skip_until = 0.0  # otherwise, a failed test could prevent its use
    try:
        yield
    finally:
        connections[replica.ALIAS].close()
        del connections[replica.ALIAS]
