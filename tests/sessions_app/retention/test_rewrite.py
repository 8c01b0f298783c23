"""A rewritten archive contains nothing of the removed session. Other sessions in the file stay unchanged."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from django.core.files.storage import FileSystemStorage
from django.db import transaction
from django.utils import timezone
from pytest_django.fixtures import Settings

from moments_app.jobs.runner import run_job
from moments_app.models import Job
from moments_app.models.job import TASK
from sessions_app.models import Archive, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.erase import delete_session, erase_user
from sessions_app.retention.archive_files import rewrite_archives
from sessions_app.retention.read_archived import read_archived
from sessions_app.retention.restore import restore_archive
from sessions_app.retention.retain import retain
from tests.support.api import Api
from tests.support.concurrency import at_once
from tests.support.killed import EVERY_KILL, FINISHED, KILLED, Killed, wait_for_backends_to_end
from tests.support.retention import cover, files, in_archives, named, rewrite_queued, texts_in
from tests.support.transcript import talk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("archive_folder")]

WORDS = ("quince", "medlar", "sorb")
TASKS = Job.objects.filter(process=TASK)


class Interrupted(FileSystemStorage):
    """A storage that runs a callback once, before it opens or saves a file."""

    before_open: ClassVar[list[Callable[[], Any]]] = []
    before_save: ClassVar[list[Callable[[], Any]]] = []

    def open(self, *arguments: Any, **named: Any) -> Any:
        if self.before_open:
            at_once(lambda _: self.before_open.pop()(), 1)
        return super().open(*arguments, **named)

    def save(self, *arguments: Any, **named: Any) -> Any:
        if self.before_save:
            at_once(lambda _: self.before_save.pop()(), 1)
        return super().save(*arguments, **named)


@pytest.fixture
def interrupted(archive_folder: Path, settings: Settings) -> type[Interrupted]:
    kept = {"BACKEND": f"{__name__}.Interrupted", "OPTIONS": {"location": archive_folder}}
    settings.STORAGES = settings.STORAGES | {"archive": kept}
    return Interrupted


def spoken(user: UserProfile, word: str) -> Session:
    """Return a session that contains the word and is not archived yet."""
    session = talk(user, 4, session_id=word, text=f"I planted a {word}.")
    cover(session, 4)
    return session


@pytest.fixture
def sessions(ada: UserProfile, archive_folder: Path) -> list[Session]:
    """Three archived sessions in one file."""
    sessions = [spoken(ada, word) for word in WORDS]
    retain()
    assert len(files(archive_folder)) == 1
    return sessions


def delete(session: Session) -> None:
    with transaction.atomic():
        delete_session(session, actor="test")


def words_in(folder: Path) -> list[str]:
    """Return the words that appear in any file."""
    texts = texts_in(folder)
    return [word for word in WORDS if word in texts]


def readable(user: UserProfile) -> list[str]:
    """Return the words that can be read from the archived turns."""
    places = [(session.pk, sequence) for session in Session.objects.for_user(user) for sequence in range(4)]
    texts = list(read_archived(user, places).values())
    return [word for word in WORDS if texts.count(f"I planted a {word}.") == 4]


# --- removal ---


@pytest.mark.parametrize("gone", WORDS)
def test_a_deleted_session_leaves_nothing_in_a_shared_file(
    sessions: list[Session], service: Api, ada: UserProfile, archive_folder: Path, gone: str
) -> None:
    others = [word for word in WORDS if word != gone]
    lines = [in_archives(session) for session in sessions if session.session_id != gone]
    [before] = files(archive_folder)
    assert service.delete(f"sessions/{gone}", user_id="ada").status_code == 204
    assert readable(ada) == others
    rewrite_queued()
    [after] = files(archive_folder)
    assert after != before and named() == {after.relative_to(archive_folder).as_posix()}
    assert words_in(archive_folder) == readable(ada) == others
    assert [in_archives(session) for session in sessions if session.session_id != gone] == lines


def test_deleting_the_last_session_deletes_the_file_at_once(sessions: list[Session], archive_folder: Path) -> None:
    for session in sessions[:2]:
        delete(session)
    rewrite_queued()
    delete(sessions[2])
    assert not files(archive_folder) and not TASKS.exists()


def test_a_restored_session_is_removed_from_a_shared_file(
    sessions: list[Session], ada: UserProfile, archive_folder: Path
) -> None:
    restore_archive(sessions[1], actor="test")
    assert readable(ada) == ["quince", "sorb"]
    rewrite_queued()
    assert words_in(archive_folder) == readable(ada) == ["quince", "sorb"]
    assert sessions[1].messages.turns().filter(content="I planted a medlar.").count() == 4


def test_a_repeated_or_late_rewrite_changes_nothing(
    sessions: list[Session], ada: UserProfile, archive_folder: Path
) -> None:
    [name] = named()
    delete(sessions[0])
    delete(sessions[1])
    assert TASKS.count() == 1
    rewrite_queued()
    [after] = files(archive_folder)
    whole = after.read_bytes()
    rewrite_archives(ada.pk, [name])
    assert files(archive_folder) == [after] and after.read_bytes() == whole
    assert words_in(archive_folder) == readable(ada) == ["sorb"]


@pytest.mark.slow
def test_row_11_a_person_erased_before_the_rewrite_leaves_no_file(
    sessions: list[Session], ada: UserProfile, archive_folder: Path
) -> None:
    delete(sessions[0])
    assert not erase_user("ada", application=DEFAULT, actor="test").has_files_left
    rewrite_queued()
    assert files(archive_folder) == []


# --- concurrent changes ---


def test_a_turn_can_be_read_while_its_file_is_rewritten(
    sessions: list[Session], ada: UserProfile, interrupted: type[Interrupted]
) -> None:
    delete(sessions[0])
    interrupted.before_open.append(rewrite_queued)  # after the reader has looked up its turn
    assert read_archived(ada, [(sessions[2].pk, 3)]) == {(sessions[2].pk, 3): "I planted a sorb."}
    assert not TASKS.exists()


def test_a_session_deleted_during_a_rewrite_leaves_nothing(
    sessions: list[Session], ada: UserProfile, archive_folder: Path, interrupted: type[Interrupted]
) -> None:
    delete(sessions[0])
    interrupted.before_save.append(lambda: delete(sessions[1]))
    rewrite_queued()
    assert not interrupted.before_save
    assert words_in(archive_folder) == readable(ada) == ["sorb"]
    assert len(files(archive_folder)) == 1


def test_sessions_deleted_and_restored_concurrently_leave_one_file(
    sessions: list[Session], ada: UserProfile, archive_folder: Path
) -> None:
    def leave(number: int) -> None:
        if number:
            delete(sessions[number])
        else:
            restore_archive(sessions[number], actor="test")

    at_once(leave, 2)
    at_once(lambda _: rewrite_queued(), 2)
    assert words_in(archive_folder) == readable(ada) == ["sorb"] and len(files(archive_folder)) == 1


def test_a_rewrite_does_not_block_archiving_of_other_people(
    sessions: list[Session], ada: UserProfile, bo: UserProfile, interrupted: type[Interrupted]
) -> None:
    delete(sessions[0])
    spoken(ada, "medlar-2"), spoken(bo, "medlar-2")
    done: list[int] = []
    interrupted.before_save.append(lambda: done.append(retain().sessions))
    rewrite_queued()
    assert done == [1]  # bo's, because ada's files are being written
    assert retain().sessions == 1


# --- nothing is lost ---


@pytest.mark.slow(seconds=15)
def test_row_16_a_killed_rewrite_loses_nothing(sessions: list[Session], ada: UserProfile, archive_folder: Path) -> None:
    variables = {"RETENTION__STORAGE_OPTIONS": json.dumps({"location": str(archive_folder)})}
    lines = in_archives(sessions[1]), in_archives(sessions[2])
    delete(sessions[0])
    steps, ended = 0, KILLED
    with Killed("tests.support.retention.rewrite_queued", **variables) as killed:
        while ended == KILLED:
            steps += 1 if EVERY_KILL else 3
            ended = killed.run(steps)
            wait_for_backends_to_end()
            assert (in_archives(sessions[1]), in_archives(sessions[2])) == lines
    assert ended == FINISHED
    assert steps > 10
    assert readable(ada) == ["medlar", "sorb"]
    spoken(ada, "medlar-2")
    retain()  # removes the files of the killed runs
    assert "quince" not in texts_in(archive_folder)
    assert {path.relative_to(archive_folder).as_posix() for path in files(archive_folder)} == named()


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_row_16_a_damaged_file_is_not_changed_and_the_job_is_retried(
    sessions: list[Session], archive_folder: Path, damage: str
) -> None:
    delete(sessions[0])
    [path] = files(archive_folder)
    whole = path.read_bytes()
    path.unlink()
    if damage == "changed":
        path.write_bytes(whole[:-30] + bytes([whole[-30] ^ 1]) + whole[-29:])
    there = files(archive_folder)
    [task] = TASKS
    waits = run_job(task.job_id)
    assert waits and (waits.status, waits.attempts, waits.held_by) == ("queued", 0, "backoff")
    assert path.name in waits.error and waits.run_after > timezone.now()
    assert files(archive_folder) == there
    path.write_bytes(whole)
    TASKS.update(run_after=timezone.now())
    tried_again = run_job(task.job_id)
    assert tried_again and tried_again.status == "completed"
    assert words_in(archive_folder) == ["medlar", "sorb"]


def test_a_rewrite_copies_spans_byte_for_byte(sessions: list[Session], archive_folder: Path) -> None:
    rows = {row["id"]: row for row in Archive.objects.values()}
    whole = files(archive_folder)[0].read_bytes()
    delete(sessions[0])
    rewrite_queued()
    moved = files(archive_folder)[0].read_bytes()
    for row in Archive.objects.values():
        place = slice(row["byte_offset"], row["byte_offset"] + row["byte_count"])
        was = rows[row["id"]]
        assert moved[place] == whole[was["byte_offset"] : was["byte_offset"] + was["byte_count"]]
        assert row | {"name": was["name"], "byte_offset": was["byte_offset"]} == was
