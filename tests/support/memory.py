"""The peak memory of a process."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# A process inherits the peak memory of its parent, so a small process is started in between.
BETWEEN = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
raise SystemExit(code)
"""


def peak_memory(command: list[str], *, cwd: Path, env: Mapping[str, str] | None = None) -> int:
    """Run a command to its end.

    Returns:
        The peak resident bytes of the command or of a process that it started.

    Raises:
        CalledProcessError: It failed.
    """
    between = [sys.executable, "-c", BETWEEN, *command]
    done = subprocess.run(between, cwd=cwd, env=env, check=True, stdout=subprocess.PIPE, text=True)
    return int(done.stdout) * (1 if sys.platform == "darwin" else 1024)
