"""The files of the spool: permissions, ownership and truncated files."""

import os
import re
import resource
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from sessions_app.models.application import DEFAULT
from sessions_app.transcript import spool
from sessions_app.transcript.spool import Spool, claimed


@pytest.fixture(autouse=True)
def folder(settings: Settings, tmp_path: Path) -> Path:
    """The folder of the spool."""
    settings.SPOOL_DIR = tmp_path / "data" / "spool"
    return tmp_path / "data" / "spool"


def left(user_id: str = "ada", session_id: str = "s1") -> Path:
    """Create a file with one record that no process holds."""
    file = Spool.create(user_id, session_id, {"of": user_id}, application=DEFAULT)
    file.release()
    return file._path


def taken(path: Path) -> Path:
    """Return the path of the file after a process has claimed it."""
    return path.with_name(path.name + spool.CLAIMED)


@contextmanager
def full_disk(after: int) -> Iterator[None]:
    """Limit files to that many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (after, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_only_the_owner_can_read_a_file_and_its_name_has_no_ids(folder: Path) -> None:
    path = left("ada")
    assert (stat.S_IMODE(folder.stat().st_mode), stat.S_IMODE(path.stat().st_mode)) == (0o700, 0o600)
    assert not re.search(r"\b(?:ada|s1)\b", path.name)  # an id may contain the letters


def test_a_released_file_waits_and_only_one_process_claims_it(folder: Path) -> None:
    held = Spool.create("ada", "s1", {}, application=DEFAULT)
    assert spool.orphan_count() == 0
    with claimed(held._path) as records:
        assert records is None
    held.release()
    assert spool.orphan_count() == 1
    with claimed(held._path) as records, claimed(held._path) as others:
        assert (records, others) == ([{}], None)
    assert list(folder.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("was_found", ["before", "after"])
def test_a_patient_claim_waits_for_the_current_one(was_found: str) -> None:
    path = left()
    [before] = spool.unstored_files("ada", "s1", DEFAULT)
    with ThreadPoolExecutor(1) as pool:
        with claimed(path):
            [after] = spool.unstored_files("ada", "s1", DEFAULT)
            waiting = pool.submit(lambda: list(records_of(before if was_found == "before" else after)))
            with pytest.raises(TimeoutError):
                waiting.result(0.2)
        assert waiting.result(30) == [None]


def records_of(path: Path) -> Iterator[Any]:
    with claimed(path, patiently=True) as records:
        yield records


def test_a_file_is_kept_if_storing_it_fails() -> None:
    path = left()
    with pytest.raises(ValueError, match="not stored"), claimed(path):
        raise ValueError("not stored")
    assert spool.orphans() == [taken(path)]


def test_the_files_of_a_session_are_returned_oldest_first() -> None:
    paths = [left("ada", "s1"), left("ada", "s2"), left("bo", "s1"), left("ada", "s1")]
    assert spool.orphans() == paths
    assert spool.unstored_files("ada", "s1", DEFAULT) == [paths[0], paths[3]]
    under_way = Spool.create("ada", "s1", {}, application=DEFAULT)
    with claimed(paths[0]):
        assert spool.orphans() == paths[1:]
        assert spool.unstored_files("ada", "s1", DEFAULT) == [taken(paths[0]), paths[3]]
    under_way.discard()


def test_forgetting_a_person_keeps_the_files_of_others(folder: Path) -> None:
    left("ada")
    under_way = Spool.create("ada", "s2", {}, application=DEFAULT)
    path = left("bo")
    spool.remove_person("ada", DEFAULT)
    assert list(folder.iterdir()) == [path]
    under_way.discard()


def test_a_record_truncated_by_a_full_disk_is_ignored(capfd: pytest.CaptureFixture[str]) -> None:
    file = Spool.create("ada", "s1", {"n": 1}, application=DEFAULT)
    with full_disk(after=500):
        file.add({"text": "SECRET" * 200})
        file.add({"n": 2})
    assert not file.is_whole
    file.release()
    with claimed(file._path) as records:
        assert records == [{"n": 1}]
    assert "SECRET" not in str(capfd.readouterr())


def test_an_empty_file_is_deleted_after_a_while(folder: Path) -> None:
    path = left()
    path.write_text("")
    with claimed(path) as records:
        assert records is None
    path = taken(path)
    assert path.exists()
    os.utime(path, (0, time.time() - 2 * spool.EMPTY_FILE_SECONDS))
    with claimed(path) as records:
        assert records is None
    assert not path.exists()
