"""The memory that a process had at its peak."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# A process counts the memory of the one that it was forked from. So a small one stands between.
BETWEEN = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
raise SystemExit(code)
"""


def peak_memory(command: list[str], *, cwd: Path, env: Mapping[str, str] | None = None) -> int:
    """Runs a command to its end.

    Returns:
        The most bytes that it, or a process it started, had resident.

    Raises:
        CalledProcessError: it failed.
    """
    between = [sys.executable, "-c", BETWEEN, *command]
    done = subprocess.run(between, cwd=cwd, env=env, check=True, stdout=subprocess.PIPE, text=True)
    return int(done.stdout) * (1 if sys.platform == "darwin" else 1024)
