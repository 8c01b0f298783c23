"""The whole drill, with its shortest part, which checks that a release can be upgraded."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from memoryproject.conf import BASE_DIR
from tests.support.earlier import LAST

pytestmark = pytest.mark.slow(seconds=30)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for temporary files that the user of the database server can enter."""
    with tempfile.TemporaryDirectory(prefix="memory-test-") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


def test_row_33_the_newest_code_starts_on_a_data_directory_of_the_last_release(folder: Path, tmp_path: Path) -> None:
    rows, own = tmp_path / "rows.json", tmp_path / "own"
    drill = subprocess.run(
        [sys.executable, "-m", "drill", "upgrade", "--json", str(rows)],
        cwd=BASE_DIR,
        env=os.environ | {"DATA_DIR": str(own), "DATABASE_URL": "", "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert drill.returncode == 0, drill.stdout + drill.stderr
    [row] = json.loads(rows.read_text())
    assert LAST in row["fault"]
    assert row["acknowledged"] >= 96
    assert (row["lost"], row["doubled"], len(row["seconds"])) == (0, 0, 1)
    assert not (own / "postgres").exists()  # the installation that runs the drill is not changed
    assert list(folder.iterdir()) == []
    assert not [one for one in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(one.info["cmdline"] or ())]
