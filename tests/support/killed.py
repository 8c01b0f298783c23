"""Runs a process of the platform again and again, each time killed a step later: `python -m tests.support.killed`.

A step is a statement to the database, or something done to a file of the storage of archives. It reads the number of
the step before which to die from a line of its input, forks, and answers with how the child ended; so Django is loaded
once.
"""

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import pytest

from memoryproject.conf import BASE_DIR
from tests.support.processes import environment
from tests.support.waiting import TIMEOUT

FINISHED, KILLED = "0", "-9"


class Killed:
    """A function of the platform in a process that dies before its n-th step.

    Args:
        function: its dotted path; called without arguments.
        variables: settings, as environment variables.
    """

    def __init__(self, function: str, **variables: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.killed", function],
            cwd=BASE_DIR,
            env=environment(**variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=TIMEOUT)

    def run(self, step: int) -> str:
        """Runs it until it dies before this step; returns its exit code."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{step}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()


def _serve(function: str) -> None:
    module, name = function.rsplit(".", 1)
    called = getattr(importlib.import_module(module), name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            with _dying_before(int(line)):
                called()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


@contextmanager
def _dying_before(last: int) -> Iterator[None]:
    from django.core.files.storage import storages
    from django.db import connection
    from django.db.backends.base.base import BaseDatabaseWrapper

    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        if count == last:
            os.kill(os.getpid(), signal.SIGKILL)

    def execute(execute: Any, *arguments: Any) -> Any:
        step()
        return execute(*arguments)

    steps: dict[Any, tuple[str, ...]] = {os: ("write", "fsync")}
    steps |= {type(storages["archive"]): ("_save", "open", "listdir", "delete"), BaseDatabaseWrapper: ("_commit",)}
    with pytest.MonkeyPatch.context() as patch:
        for owner, names in steps.items():
            for name in names:
                patch.setattr(owner, name, _stepping(getattr(owner, name), step))
        with connection.execute_wrapper(execute):
            yield


def _stepping(function: Any, step: Callable[[], None]) -> Any:
    def stepped(*arguments: Any, **named: Any) -> Any:
        step()
        return function(*arguments, **named)

    return stepped


if __name__ == "__main__":
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "memoryproject.settings"
    django.setup()
    _serve(sys.argv[1])
