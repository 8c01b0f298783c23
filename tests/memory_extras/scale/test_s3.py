"""Archives in a bucket behave like archives on disk. Tested with a server that speaks S3."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from django.core.files.storage import storages
from django.core.management import CommandError, call_command
from django.db import transaction
from django.utils import timezone
from pytest_django.fixtures import Settings

from memoryproject import conf
from memoryproject.status.watchdog import refusals
from sessions_app.models import Archive, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.erase import delete_session, erase_user
from sessions_app.retention.read_archived import read_archived
from sessions_app.retention.restore import restore_archive
from sessions_app.retention.retain import retain
from sessions_app.transcript.append import NewMessage, append
from tests.support.killed import EVERY_KILL, KILLED, Killed, wait_for_backends_to_end
from tests.support.object_store import BUCKET, ObjectStore
from tests.support.retention import OLD, cover, covered_session, fingerprint, in_archives, in_table, rewrite_queued

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def store(settings: Settings, tmp_path: Path) -> Iterator[ObjectStore]:
    """An object store for the archives of this process."""
    with ObjectStore() as store:
        settings.RETENTION = conf.load(store.settings()).retention
        settings.STORAGES = settings.STORAGES | {"archive": settings.RETENTION.storage(tmp_path)}
        yield store


def names() -> list[str]:
    """Return the names of the objects that the archive rows refer to."""
    return sorted({f"memory/{archive.name}" for archive in Archive.objects.all()})


def test_turns_are_archived_in_the_bucket_and_restored_unchanged(ada: UserProfile, store: ObjectStore) -> None:
    session = covered_session(ada, 30, live=3)
    before, lines = fingerprint(session), in_table(session)
    done = retain()
    assert (done.archived_turns, done.failed_sessions) == (30, 0)
    assert store.names() == names() != []
    assert in_archives(session) == lines[:30]
    kept = store.client.get_object(Bucket=BUCKET, Key=names()[0])
    assert kept["ContentType"] == "application/gzip" and "ContentEncoding" not in kept
    restore_archive(session, actor="test")
    assert fingerprint(session) == before
    assert store.names() == []


def test_sessions_are_stored_read_and_rewritten_as_one_object_per_month(ada: UserProfile, store: ObjectStore) -> None:
    sessions = [covered_session(ada, 6, session_id=f"s{number}") for number in range(5)]
    lines = [in_table(session) for session in sessions]
    store.asked.clear()
    assert retain().archived_turns == 30
    # HEAD, PUT, HEAD, GET per month, and one listing
    assert Counter(method for method, _, _ in store.asked) == {"HEAD": 4, "PUT": 2, "GET": 3}
    assert store.names() == names() and len(names()) == 2
    assert [in_archives(session) for session in sessions] == lines
    with transaction.atomic():
        delete_session(sessions[2], actor="test")
    rewrite_queued()
    assert store.names() == names() and len(names()) == 2
    assert [in_archives(session) for session in sessions[:2] + sessions[3:]] == lines[:2] + lines[3:]
    assert len(read_archived(ada, [(sessions[4].pk, 1), (sessions[0].pk, 5)])) == 2


@pytest.mark.slow(seconds=60)
def test_row_16_archiving_to_a_bucket_killed_at_any_step_loses_nothing(ada: UserProfile, store: ObjectStore) -> None:
    steps, ended = 0, KILLED
    with Killed("sessions_app.retention.retain.retain", **store.settings()) as killed:
        while ended == KILLED:
            steps += 1 if EVERY_KILL else 10  # of about a hundred
            sessions = [covered_session(ada, 12, session_id=f"{name}{steps}") for name in ("a", "b")]
            everything = [in_table(session) for session in sessions]
            ended = killed.run(steps)
            wait_for_backends_to_end()
            for session, turns in zip(sessions, everything, strict=True):
                assert sorted(in_table(session) + in_archives(session)) == sorted(turns)
            retain()
            assert [in_archives(session) for session in sessions] == everything
            assert store.names() == names()
    assert steps > 30


@pytest.mark.parametrize("broken", ["PUT", "GET"])
def test_row_16_turns_stay_if_the_bucket_cannot_be_written_or_read(
    ada: UserProfile, store: ObjectStore, broken: str
) -> None:
    session = covered_session(ada, 10)
    before = fingerprint(session)
    store.broken.add(broken)
    done = retain()
    assert (done.failed_sessions, done.archived_turns) == (1, 0)
    assert fingerprint(session) == before
    store.broken.clear()
    assert retain().archived_turns == 10
    assert store.names() == names()


def test_only_the_needed_part_of_a_large_object_is_fetched(ada: UserProfile, store: ObjectStore) -> None:
    texts = [NewMessage("user", f"{number} " + "kilns " * 7_000) for number in range(20)]
    session = append(ada, "s1", texts).session
    Session.objects.update(last_arrived_at=timezone.now() - OLD)
    session.messages.update(arrived_at=timezone.now() - OLD)
    cover(session, 20)
    assert retain().archived_turns == 20
    store.asked.clear()
    [text] = read_archived(ada, [(session.pk, 15)]).values()
    assert text.startswith("15 ")
    offset = Archive.objects.get().block_offsets[15]
    assert offset and [(method, part) for method, _, part in store.asked] == [
        ("HEAD", None),
        ("GET", f"bytes={offset}-"),
    ]


@pytest.mark.parametrize("versions", [False, True])
def test_row_11_an_erased_person_leaves_nothing_in_the_bucket(
    ada: UserProfile, bo: UserProfile, store: ObjectStore, versions: bool
) -> None:
    if versions:
        store.client.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    for person in (ada, bo):
        session = covered_session(person, 20)
        Session.objects.filter(pk=session.pk).update(summarised_sequence=9)
    retain()
    Session.objects.update(summarised_sequence=19)
    retain()  # a month that grew has moved to another file
    storages["archive"].save(f"{ada.pk}/left", storages["archive"].open(names()[0].removeprefix("memory/")))
    assert not erase_user("ada", application=DEFAULT, actor="test").has_files_left
    assert store.names() == names()
    assert {archive.user_id for archive in Archive.objects.all()} == {bo.pk}


def test_row_34_a_backup_contains_the_objects_and_verify_reports_missing_ones(
    ada: UserProfile, store: ObjectStore, tmp_path: Path
) -> None:
    for number in range(3):
        covered_session(ada, 10, session_id=f"s{number}")
    retain()
    path = tmp_path / "all.backup"
    call_command("backup", str(path))
    call_command("verify", str(path))
    with ZipFile(path) as file:
        kept = [name for name in file.namelist() if name.startswith("archives/")]
    assert kept == [name.replace("memory", "archives") for name in names()] and len(kept) == 2
    gone = names()[0]
    store.client.delete_object(Bucket=BUCKET, Key=gone)
    with pytest.raises(CommandError, match=rf"{gone.removeprefix('memory/')} is missing"):
        call_command("verify")


def test_a_working_bucket_causes_no_refusal(store: ObjectStore) -> None:
    assert refusals() == []
    assert store.names() == []


def test_a_missing_or_failing_bucket_is_reported_at_the_start(store: ObjectStore) -> None:
    store.client.delete_bucket(Bucket=BUCKET)
    [told] = refusals()
    assert "NoSuchBucket" in told and told.endswith("Check RETENTION__S3_BUCKET.")
    store.client.create_bucket(Bucket=BUCKET)
    store.broken.add("GET")
    [told] = refusals()
    assert "503" in told
    store.broken.clear()
    assert refusals() == []
