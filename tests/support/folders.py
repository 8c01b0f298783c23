"""Folders that a database server can live in."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memoryproject.embedded import server


@contextmanager
def data_folder() -> Iterator[Path]:
    """A DATA_DIR; its server is stopped afterwards.

    Not one of pytest's: each run of pytest that begins closes the folder of all runs to other users, and run as root
    the server is one of them.
    """
    with tempfile.TemporaryDirectory(prefix="memory-test-") as folder:
        try:
            yield Path(folder)
        finally:
            server.stop(Path(folder) / "postgres")
