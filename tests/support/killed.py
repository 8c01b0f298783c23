"""Run a function repeatedly, killed one step later each time: `python -m tests.support.killed`.

A step is a statement, a commit, or a file operation. The process reads a line of JSON with the step before which to
die, forks, and writes the child's exit code and its number of steps. Forking avoids loading Django and the language
models again. The process also imports the modules that a child imported, such as migrations, so that later children
find them loaded.
"""

import gc
import importlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

import pytest
from django.db import connection

from memoryproject.conf import BASE_DIR
from sessions_app import lexemes
from tests.support.processes import environment
from tests.support.waiting import TIMEOUT, wait_until

EVERY_KILL = "EVERY_KILL" in os.environ  # kill before every step instead of some, as `make trust` does
FINISHED, KILLED = "0", "-9"
COMMAND = "django.core.management.call_command"
NEVER = 10**9
PART = 20_000  # bytes of a part
_READS = re.compile(r"\s*(SELECT|WITH|SHOW|SET|SAVEPOINT|RELEASE|ROLLBACK)\b", re.I)


class Killed:
    """A function of the platform in a process that dies before its n-th step.

    Args:
        function: The function's dotted path.
        variables: Settings, as environment variables.

    Attributes:
        steps: The number of steps of the last run, if it finished.
    """

    def __init__(self, function: str, **variables: str) -> None:
        self.steps = 0
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

    def run(self, step: int, *arguments: str) -> str:
        """Run it with these arguments until it dies before this step. Return its exit code."""
        return self._run(step=step, commits=NEVER, arguments=arguments)

    def run_to_commit(self, commits: int, *arguments: str) -> str:
        """Run it until it dies after its n-th commit that may have changed data. Return its exit code."""
        return self._run(step=NEVER, commits=commits, arguments=arguments)

    def _run(self, **asked: Any) -> str:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{json.dumps(asked)}\n")
        self._process.stdin.flush()
        ended, self.steps = json.loads(self._process.stdout.readline())
        return str(ended)


def wait_for_backends_to_end() -> None:
    """Wait until the server has ended the transaction of a killed client."""
    wait_until(_no_other_is_in_a_transaction)


def _no_other_is_in_a_transaction() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
            "AND state IN ('active', 'idle in transaction', 'idle in transaction (aborted)')"
        )
        return bool(cursor.fetchone() == (0,))


def _serve(function: str) -> None:
    module, name = function.rsplit(".", 1)
    called = getattr(importlib.import_module(module), name)
    lexemes.load()
    for line in sys.stdin:
        asked = json.loads(line)
        reader, writer = os.pipe()
        gc.freeze()  # a collection in the child would copy the shared memory
        child = os.fork()
        if child == 0:
            gc.disable()
            os.dup2(2, 1)  # separates the command's output from the responses
            steps = _Steps(asked["step"], asked["commits"], writer)
            with steps.counted():
                called(*asked["arguments"])
            steps.report()
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as answer:
            count, imported = json.loads(answer.read() or "[0, []]")
        _, status = os.waitpid(child, 0)
        for module in imported:
            importlib.import_module(module)
        sys.stdout.write(f"{json.dumps([os.waitstatus_to_exitcode(status), count])}\n")
        sys.stdout.flush()


class _Steps:
    """Counts steps and commits of this process, and kills it at the given one.

    Args:
        last: The step before which to die.
        commits: The commit after which to die.
        writer: The file descriptor for `report`.
    """

    def __init__(self, last: int, commits: int, writer: int) -> None:
        self._count = 0
        self._last, self._commits, self._writer = last, commits, writer
        self._has_written = False
        self._loaded = {*sys.modules}

    def report(self) -> None:
        """Write the number of steps and the imported modules.

        The parent can't import modules without a spec of their own, such as copies of other modules.
        """
        new = sys.modules.keys() - self._loaded
        imported = [name for name in new if getattr(getattr(sys.modules[name], "__spec__", None), "name", "") == name]
        with os.fdopen(self._writer, "w") as answer:
            json.dump([self._count, sorted(imported)], answer)

    @contextmanager
    def counted(self) -> Iterator[None]:
        from django.core.files.storage import storages
        from django.db.backends.base.base import BaseDatabaseWrapper

        from memoryproject.database import backup, restore

        counted: dict[Any, tuple[str, ...]] = {
            os: ("write", "fsync"),
            Path: ("touch", "write_bytes", "replace", "rename", "unlink"),
            backup: ("find_program",),
            type(storages["archive"]): ("_save", "open", "listdir", "delete"),
            BaseDatabaseWrapper: ("_commit",),
        }
        with pytest.MonkeyPatch.context() as patch:
            for owner, names in counted.items():
                for name in names:
                    patch.setattr(owner, name, self._counted(getattr(owner, name)))
            patch.setattr(restore, "copyfileobj", self._copy)
            with connection.execute_wrapper(self._execute):
                yield

    def _copy(self, source: IO[bytes], target: IO[bytes], _: int) -> None:
        """Copy in small parts, each of which is a step, so that `pg_restore` is killed in the middle of its input."""
        while part := source.read(PART):
            self._step()
            target.write(part)
            target.flush()

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            self._step()
            result = function(*arguments, **named)
            if function.__name__ == "_commit" and self._has_written:
                self._committed()
            return result

        return counted

    def _execute(self, execute: Any, sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
        self._step()
        result = execute(sql, params, many, context)
        self._has_written |= not _READS.match(str(sql))
        if self._has_written and not context["connection"].in_atomic_block:
            self._committed()
        return result

    def _step(self) -> None:
        self._count += 1
        if self._count == self._last:
            self._die()

    def _committed(self) -> None:
        self._has_written = False
        self._commits -= 1
        if self._commits == 0:
            self._die()

    def _die(self) -> None:
        self.report()
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "memoryproject.settings"
    django.setup()
    _serve(sys.argv[1])
