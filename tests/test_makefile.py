"""The Makefile leaves settings alone, and repeats an installation that failed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from django.conf import settings

ROOT = Path(settings.BASE_DIR)
# A Python whose module `venv` creates the program and then fails, as on Debian without the package python3-venv.
WITHOUT_VENV = """#!/bin/sh
test "$1" = -m || exit 0
mkdir -p .venv/bin && ln -sf /bin/sh .venv/bin/python
exit 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "Makefile", tmp_path)
    return tmp_path


def make(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if name != "DATA_DIR"}
    return subprocess.run(
        ["make", "--silent", *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )


def test_make_keeps_the_data_dir_of_the_env_file(folder: Path) -> None:
    show = ("--eval", "show: ; @echo folder: $$DATA_DIR", "show")
    assert make(folder, *show).stdout == "folder:\n"
    assert make(folder, *show, "DATA_DIR=.data2").stdout == "folder: .data2\n"


def test_make_repeats_a_failed_installation(folder: Path) -> None:
    python = folder / "python"
    python.write_text(WITHOUT_VENV)
    python.chmod(0o755)
    for _ in range(2):
        failed = make(folder, ".venv/bin/python", f"PYTHON={python}")
        assert failed.returncode
        assert failed.stdout == "Installing the packages in the folder .venv …\n"
