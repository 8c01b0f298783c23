"""A landed migration never changes, because databases that ran it don't run it again."""

import shutil
import subprocess
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.core.management import call_command
from pytest_django.fixtures import Settings

from sessions_app.migrations import _word_search
from tests.support import landed
from tests.support.landed import LIST, digests, faults, listed, replaced

ROOT = Path(django_settings.BASE_DIR)


@pytest.fixture
def copied(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the migrations of `sessions_app` that replaces them."""
    name = f"copied_{tmp_path.name}"
    copy = tmp_path / name
    shutil.copytree(ROOT / "sessions_app" / "migrations", copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.syspath_prepend(tmp_path)
    settings.MIGRATION_MODULES = {"sessions_app": name}
    return copy


@pytest.mark.django_db
def test_every_model_change_has_a_migration() -> None:
    call_command("makemigrations", check=True, dry_run=True)


def found() -> list[str]:
    return faults(listed(LIST.read_text()), digests(), replaced())


def test_row_33_a_landed_migration_never_changes() -> None:
    assert listed(LIST.read_text()).keys() >= {
        "sessions_app.0047_limits_of_keys_and_applications",
        "moments_app.0001_initial",
    }
    assert found() == []


def test_row_33_an_edited_migration_is_reported_by_name(copied: Path) -> None:
    edited = copied / "0043_fixed_search_path.py"
    edited.write_text(edited.read_text().replace("0042_functions_on_turns", "0040_said_hash"))
    assert [fault.split()[0] for fault in found()] == ["sessions_app.0043_fixed_search_path"]


def test_row_33_a_migration_whose_imported_sql_changes_is_reported(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_word_search, "MOST_READ", 9_999)
    assert "sessions_app.0001_squashed_0042_initial" in {fault.split()[0] for fault in found()}


def test_row_33_missing_and_unlisted_migrations_are_reported(copied: Path) -> None:
    last = max(path for path in copied.glob("0*.py") if f"sessions_app.{path.stem}" not in replaced())
    last.rename(copied / "0999_renamed.py")
    assert found() == [
        f"sessions_app.{last.stem} has landed and is gone: databases on which it did not run need it.",
        "sessions_app.0999_renamed is not listed: python -m tests.support.landed",
    ]


def test_row_33_listing_adds_new_migrations_and_never_rewrites_a_line(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landed, "LIST", tmp_path / "landed.txt")
    landed.main()
    before = listed(landed.LIST.read_text())
    assert before == digests()
    shutil.copy(copied / "0043_fixed_search_path.py", copied / "0999_new.py")
    (copied / "0043_fixed_search_path.py").write_text("# edited\n" + (copied / "0043_fixed_search_path.py").read_text())
    landed.main()
    assert listed(landed.LIST.read_text()) == before | {"sessions_app.0999_new": digests()["sessions_app.0999_new"]}


def test_row_33_the_list_keeps_every_line_of_the_main_branch() -> None:
    """In a repository, compare with the main branch: editing a migration and its line must fail too."""
    base = git("merge-base", "HEAD", "origin/main") or git("merge-base", "HEAD", "main")
    if not base:
        pytest.skip("There is no main branch to compare with.")
    there = git("show", f"{base}:{LIST.relative_to(ROOT)}")
    assert {*there.splitlines()} <= {*LIST.read_text().splitlines()}


def git(*arguments: str) -> str:
    """Return the output of git, which is empty if the command fails or git is not installed."""
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return ""
