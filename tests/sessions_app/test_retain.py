"""Turns leave the transcript when they are old and covered, and come back as they were."""

from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from sessions_app.models import Archive, UserProfile
from sessions_app.processes.restore import restore_archive
from sessions_app.processes.retain import retain
from tests.support.retention import covered_session, fingerprint, in_archives, in_table

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def folder(settings: Settings, tmp_path: Path) -> Path:
    """Where the archives are."""
    settings.STORAGES = settings.STORAGES | {"archive": settings.RETENTION.storage(tmp_path)}
    return tmp_path / "archive"


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_old_covered_turns_go_into_a_file_a_month_and_come_back_byte_for_byte(ada: UserProfile, folder: Path) -> None:
    session = covered_session(ada, 30, live=3)
    before, lines = fingerprint(session), in_table(session)
    done = retain()
    assert (done.sessions, done.archived_turns, done.failed_sessions) == (1, 30, 0)
    assert len(in_table(session)) == 3
    assert in_archives(session) == lines[:30]
    assert [path.stat().st_mode & 0o777 for path in files(folder)] == [0o600, 0o600]
    assert done.archived_bytes == sum(path.stat().st_size for path in files(folder))
    session.refresh_from_db()
    assert session.kept_from_sequence == 30
    assert session.message_count == 33
    restored = restore_archive(session, actor="test")
    assert (restored.files, restored.turns) == (2, 30)
    assert fingerprint(session) == before
    assert not Archive.objects.exists() and not files(folder)
    session.refresh_from_db()
    assert session.kept_from_sequence == 0
