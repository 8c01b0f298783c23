"""Erased text in the database files, and the nightly run that removes it."""

from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from memoryproject.database import vacuum as module
from memoryproject.database.vacuum import VacuumResult, vacuum
from sessions_app.database.database_roles import WORKER_ROLE, grant_privileges
from sessions_app.models import UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.erase import erase_user
from tests.support.roles import logged_in_as
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)

MARKER = "zanzibarite"


def files_with_marker() -> list[str]:
    """Return the tables whose files contain the marker after a checkpoint."""
    with connection.cursor() as cursor:
        cursor.execute("CHECKPOINT")
        cursor.execute(
            "SELECT pg_relation_filepath(oid), oid::regclass::text FROM pg_class WHERE relkind IN ('r', 't')"
        )
        paths = cursor.fetchall()
    folder = Path(settings.EMBEDDED_DATABASE_DIR)
    return [name for path, name in paths if path and MARKER.encode() in (folder / path).read_bytes()]


@pytest.fixture
def erased(ada: UserProfile, bo: UserProfile) -> None:
    """Ada spoke between two conversations of Bo and was then erased."""
    talk(bo, 30, session_id="before")
    talk(ada, 60, text=f"My favorite stone is {MARKER}. " * 9)
    talk(bo, 30, session_id="after")
    UserProfile.objects.filter(pk=ada.pk).update(summary=f"Collects {MARKER}.")
    erase_user("ada", application=DEFAULT, actor="test")


@pytest.mark.slow(seconds=5)
@pytest.mark.usefixtures("erased")
def test_row_11_a_worker_removes_erased_text_from_the_files_of_tables() -> None:
    assert "sessions_app_message" in files_with_marker()
    with logged_in_as(WORKER_ROLE):
        found = vacuum(dry_run=True)
        assert vacuum() == found and found.rewritten > 20 and found.of_another_owner == 0
        assert str(vacuum()).startswith(f"vacuumed: {found.vacuumed}, rewritten: 0")
    assert files_with_marker() == []


@pytest.mark.slow(seconds=5)
@pytest.mark.usefixtures("erased")
def test_a_table_in_use_is_vacuumed_by_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRIES", 1)
    another = connection.copy()
    with another.cursor() as cursor:
        cursor.execute("BEGIN; SELECT count(*) FROM sessions_app_message")
        assert vacuum().in_use == 1
    another.close()
    assert files_with_marker() == ["sessions_app_message"]
    assert (vacuum().rewritten, files_with_marker()) == (1, [])


def test_without_an_erasure_no_table_is_locked(ada: UserProfile) -> None:
    talk(ada, 4)
    assert vacuum(dry_run=True).rewritten == 0


def test_tables_that_the_login_may_not_vacuum_are_counted(ada: UserProfile) -> None:
    with logged_in_as(WORKER_ROLE):
        allowed = vacuum(dry_run=True)
    with connection.cursor() as cursor:
        cursor.execute(f"REVOKE MAINTAIN ON sessions_app_message FROM {WORKER_ROLE}")
    with logged_in_as(WORKER_ROLE):
        assert vacuum(dry_run=True) == VacuumResult(allowed.vacuumed - 1, of_another_owner=1)
    grant_privileges()
    with logged_in_as(WORKER_ROLE):
        assert vacuum(dry_run=True) == allowed
