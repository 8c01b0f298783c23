"""Stops the embedded database when the process that served from it is gone: `python -m memoryproject.embedded.keeper`.

`run` starts one beside its other children. Those die with it; the keeper outlives it for a moment, takes its lock, and
stops the server in an orderly way. When another `run` holds the directory already, the server is that one's.
"""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from memoryproject.embedded import server
from memoryproject.process_tree import PARENT, Held, hold

PAUSE = 0.3  # seconds between two looks at the parent


def main(data_dir: Path) -> None:
    """Wait for the parent's end, then stop the server.

    Args:
        data_dir: what the parent holds.
    """
    while os.environ.get(PARENT) == str(os.getppid()):
        time.sleep(PAUSE)
    with suppress(Held), hold(data_dir):
        server.stop(data_dir / "postgres")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
