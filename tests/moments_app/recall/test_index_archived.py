"""A job adds rows for turns that an earlier release archived without them, so that searches find them."""

from pathlib import Path

import pytest
from django.core.files.storage import storages
from django.core.management import call_command
from django.test import Client

from moments_app.jobs.runner import run_job
from moments_app.models import Job
from moments_app.recall.index_words import IndexArchived
from moments_app.recall.request import RecallRequest
from moments_app.recall.results import Result
from moments_app.recall.search import recall
from sessions_app.models import Archive, Session, UserProfile
from sessions_app.retention.retain import retain
from sessions_app.transcript.append import NewMessage, append
from tests.support.jobs import work_off
from tests.support.operator import operator
from tests.support.pages import page
from tests.support.retention import archived_without_rows, covered_session, files, in_archives, restore_all

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("archive_folder")]

TURNS = 12


@pytest.fixture
def session(ada: UserProfile) -> Session:
    """A session of two months that was archived without rows."""
    session = covered_session(ada, TURNS)
    retain()
    archived_without_rows(session)
    return session


def found(user: UserProfile) -> list[Result]:
    """Return the results of a search for a word of each turn."""
    return recall(user, "", RecallRequest("quoted", ("turn",)), most=50)


def asked() -> int:
    return IndexArchived().sweep().jobs


def test_row_38_turns_archived_by_an_earlier_release_are_found_after_the_job(
    session: Session, archive_folder: Path
) -> None:
    lines, there = in_archives(session), files(archive_folder)
    assert found(session.user) == []
    assert asked() == 1
    work_off()
    assert Job.objects.get(process=IndexArchived.name).result == {"sessions_left": 0}
    results = found(session.user)
    assert len(results) == TURNS
    assert all("a second line" in result.content for result in results)  # read from the files
    assert session.messages.archived().count() == TURNS and not session.messages.turns().exists()
    assert (in_archives(session), files(archive_folder)) == (lines, there)
    assert asked() == 0


@pytest.mark.slow
def test_row_38_an_interrupted_job_continues_with_the_remaining_archives(session: Session) -> None:
    asked()
    second = Archive.objects.latest("pk")
    with storages["archive"].open(second.name) as file:
        content = file.read()
    storages["archive"].delete(second.name)
    job = Job.objects.get(process=IndexArchived.name)
    Job.objects.filter(pk=job.pk).update(attempts=99)
    work_off()
    job.refresh_from_db()
    assert (job.status, len(found(session.user))) == (Job.Status.FAILED, TURNS // 2)
    assert asked() == 0  # until an operator retries it
    with storages["archive"].open(second.name, "wb") as file:
        file.write(content)
    job.restart()
    work_off()
    assert len(found(session.user)) == TURNS


def test_row_38_all_turns_of_a_month_archived_in_two_runs_are_found(ada: UserProfile) -> None:
    session = covered_session(ada, TURNS)
    Session.objects.update(summarised_sequence=2)
    retain()
    archived_without_rows(session)
    Session.objects.update(summarised_sequence=TURNS - 1)
    retain()
    assert 0 < len(found(ada)) < TURNS
    asked()
    run_job(Job.objects.get(process=IndexArchived.name).job_id)
    assert len(found(ada)) == TURNS


def test_row_38_turns_with_added_rows_are_restored_unchanged(session: Session) -> None:
    lines = in_archives(session)
    asked()
    work_off()
    restore_all()
    assert session.messages.turns().count() == len(lines)


def test_a_message_sent_again_meanwhile_is_skipped_and_reported(ada: UserProfile, session: Session) -> None:
    append(ada, session.session_id, [NewMessage("user", "Another text.", external_id="m2")])
    asked()
    work_off()
    assert Job.objects.get(process=IndexArchived.name).result == {"sessions_left": 1}
    assert session.messages.archived().count() == TURNS // 2  # in the other month


@pytest.mark.slow
def test_the_dashboard_shows_the_job_until_it_is_done(session: Session) -> None:
    root: Client = operator()
    assert "Archived turns" not in page(root, "/admin/")
    asked()
    assert "Archived turns" in page(root, "/admin/")
    work_off()
    assert "Archived turns" not in page(root, "/admin/")


@pytest.mark.slow
def test_migrate_queues_the_job(session: Session) -> None:
    call_command("migrate", verbosity=0)
    assert Job.objects.filter(process=IndexArchived.name, user=session.user).exists()
