"""A start that can't succeed ends with status 1 and one sentence that names what to fix. It creates nothing."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.other_database import empty_database
from tests.support.processes import database_url, free_port, manage

pytestmark = pytest.mark.slow

Disk = Callable[[str], Path]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Return a function that mounts a small disk. Skip the test without the right to mount."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def make(size: str) -> Path:
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)], capture_output=True)
        if made.returncode:
            pytest.skip("Only an administrator may mount a disk.")
        return folder

    yield make
    subprocess.run(["umount", str(folder)], capture_output=True)


def start(folder: Path) -> str:
    """Run the site in the folder; return the only line on its standard error."""
    own = {"DATA_DIR": str(folder), "DATABASE_URL": "", "SECRET_KEY": ""}
    ended = manage("run", "--no-demo", "--port", str(free_port()), **own)
    assert ended.returncode == 1
    [sentence] = ended.stderr.strip().splitlines()
    return sentence


def test_a_full_disk_is_named(disk: Disk) -> None:
    folder = disk("16k")
    with pytest.raises(OSError, match="No space left"):
        (folder / "all").write_bytes(b"x" * 1_000_000)
    assert start(folder) == f"Configuration error: DATA_DIR: {folder} can't be used: No space left on device."
    assert [path.name for path in folder.iterdir()] == ["all"]


def test_a_disk_too_small_for_a_database_is_named_before_creating_one(disk: Disk) -> None:
    folder = disk("4m")
    assert "not enough space for the database in" in (told := start(folder))
    assert "4 MB are free, and 100 are needed." in told
    assert not (folder / "postgres").exists()


def test_a_folder_below_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "can't be used: Not a directory." in start(tmp_path / "file" / "data")


@pytest.mark.parametrize("command", [["create_api_key", "mine"], ["migrate"]])
def test_a_command_names_a_database_server_that_does_not_respond(command: list[str]) -> None:
    ended = manage(*command, DATABASE_URL=f"postgres://nobody@127.0.0.1:{free_port()}/nothing")
    assert ended.returncode == 1
    assert ended.stderr.startswith("Can't connect to the database. Check the database server and DATABASE_URL.")
    assert "Connection refused" in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.parametrize("command", ["run", "embeddings"])
def test_a_port_that_cannot_be_used_is_named(command: str, tmp_path: Path) -> None:
    ended = manage(command, "--port", "99999", DATA_DIR=str(tmp_path), DATABASE_URL="", MEMORY_NEW_DATABASE="1")
    assert ended.returncode == 1
    assert "99999" in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.django_db(transaction=True)
def test_a_command_on_an_empty_database_names_migrate() -> None:
    with empty_database():
        ended = manage("create_api_key", "mine", DATABASE_URL=database_url())
    assert ended.returncode == 1
    assert ended.stderr.strip() == "Migrations have not been applied. Run manage.py migrate."
