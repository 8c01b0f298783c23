"""Row 38: archived turns are found like others, and their text is read from the archive when it is shown."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.files.storage import FileSystemStorage
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django.fixtures import Settings

from moments_app.models.embedding import TurnEmbedding
from moments_app.recall.request import RecallRequest
from moments_app.recall.results import Result
from moments_app.recall.search import recall
from moments_app.sessions.sweep import compact_sessions
from sessions_app.imports.import_sessions import Record, SessionRef, import_sessions
from sessions_app.models import Archive, Message, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.erase import delete_session, erase_user
from sessions_app.retention import read_archived as reading
from sessions_app.retention.archive_files import CHUNK_BYTES
from sessions_app.retention.read_archived import UNREADABLE, read_archived, with_readable_text, with_text
from sessions_app.retention.restore import restore_archive
from sessions_app.retention.retain import retain
from sessions_app.row_security import acting_for
from sessions_app.transcript.append import NewMessage, append
from tests.moments_app.provenance.test_erase import traces
from tests.support.api import Api
from tests.support.jobs import count, work_off
from tests.support.openai_server import OpenAIServer
from tests.support.retention import cover, files, fingerprint

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("archive_folder")]

SAID = datetime(2023, 5, 1, 9, 0, tzinfo=UTC)
TEXTS = (
    "Where did you buy the harpsichord?",
    "In Lyon, from an old man, for very little.",
    "I have the kiln at 1,200 degrees now.",
    "That is hot enough for stoneware.",
    "My sister Oriane moves to Trieste in June.",
    "Then you need a new lodger.",
)


def imported(user: UserProfile, *texts: str, session_id: str = "s1") -> Session:
    """Return a conversation of 2023 that is imported today."""
    records = [
        Record(
            str(n),
            SessionRef(user.user_id, session_id),
            NewMessage(
                "assistant" if n % 2 else "user", text, created_at=SAID + timedelta(minutes=n), external_id=f"m{n}"
            ),
        )
        for n, text in enumerate(texts or TEXTS)
    ]
    assert import_sessions(records, application=DEFAULT).added == len(records)
    return Session.objects.get(user=user, session_id=session_id)


def arrived(session: Session, ago: timedelta) -> None:
    """Set the arrival of a session's turns that long ago."""
    session.messages.update(arrived_at=timezone.now() - ago)
    Session.objects.filter(pk=session.pk).update(last_arrived_at=timezone.now() - ago)


def archived(user: UserProfile, *texts: str, session_id: str = "s1") -> Session:
    """Return a session whose turns are all archived."""
    session = imported(user, *texts, session_id=session_id)
    cover(session, session.message_count)
    arrived(session, timedelta(days=31))
    assert retain().archived_turns == session.message_count
    return session


def found(user: UserProfile, query: str, **asked: Any) -> list[Result]:
    return recall(user, "", RecallRequest(query, ("turn",), **asked))


def contents(user: UserProfile, query: str) -> list[str]:
    return [result.content for result in found(user, query)]


class SlowStorage(FileSystemStorage):
    """Takes two seconds to open a file."""

    def open(self, *arguments: Any, **named: Any) -> Any:
        time.sleep(2)
        return super().open(*arguments, **named)


# --- archiving ---


def test_row_38_retention_and_settling_count_from_the_arrival_of_imported_turns(ada: UserProfile) -> None:
    session = imported(ada)
    assert session.last_activity_at.year == 2023
    assert compact_sessions(dry_run=True).settled == 0
    arrived(session, timedelta(minutes=19))
    assert compact_sessions(dry_run=True).settled == 0
    arrived(session, timedelta(minutes=31))
    assert compact_sessions(dry_run=True).settled == 1
    cover(session, session.message_count)
    assert (retain().archived_turns, retain().overdue_sessions) == (0, 0)
    arrived(session, timedelta(days=29))
    assert retain().archived_turns == 0
    arrived(session, timedelta(days=31))
    assert retain().archived_turns == 6


def test_row_38_a_turn_that_arrived_later_keeps_the_turns_after_it(ada: UserProfile) -> None:
    session = imported(ada)
    cover(session, session.message_count)
    arrived(session, timedelta(days=31))
    session.messages.filter(sequence=3).update(arrived_at=timezone.now())
    assert retain().archived_turns == 3
    assert list(session.messages.turns().order_by("sequence").values_list("sequence", flat=True)) == [3, 4, 5]


# --- searches ---


def found_in(answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [(result["ref"], result["content"]) for result in answer["results"]]


@pytest.mark.slow
def test_row_38_an_imported_settled_and_archived_session_is_found_with_its_text(
    service: Api, ada: UserProfile, embeddings_server: OpenAIServer, model_server: OpenAIServer, settings: Settings
) -> None:
    settings.EMBEDDING = settings.EMBEDDING.model_copy(update={"turns": True})
    session = imported(ada)
    work_off()
    arrived(session, timedelta(hours=1))
    assert compact_sessions().settled == 1
    work_off()
    assert retain().archived_turns == 0
    asked = [
        {"user_id": "ada", "query": query, "kinds": ["turn"], "mode": mode}
        for query in ("Who moves to Trieste?", "buy a harpsichord", "How hot is the kiln?")
        for mode in ("text", "semantic", "hybrid")
    ]
    before = [service.post("memory/search", **question).json() for question in asked]
    assert all(answer["results"] and not answer["degraded"] for answer in before)
    arrived(session, timedelta(days=31))
    for expected in (6, 0):
        assert retain().archived_turns == expected
        assert [service.post("memory/search", **question).json() for question in asked] == before
    assert not Message.objects.exclude(kind="partition").exclude(content="").exists()
    append(ada, "s2", [NewMessage("user", "Good morning.")])
    context = service.get("memory/context", user_id="ada", session_id="s2", query="Who moves to Trieste?").json()
    assert TEXTS[4] in context["context"]
    restore_archive(session, actor="test")
    after = [service.post("memory/search", **question).json() for question in asked]
    assert list(map(found_in, after)) == list(map(found_in, before))  # the new turn changes the weights of words


def test_row_38_words_of_archived_turns_are_counted_like_others(ada: UserProfile) -> None:
    archived(ada)
    imported(ada, "A harpsichor is no word.", session_id="s2")
    count(ada)
    assert contents(ada, "harpsichord")[0] == TEXTS[0]
    assert contents(ada, "harpsicord")[0] in (TEXTS[0], "A harpsichor is no word.")


def test_archived_turns_are_found_with_the_text_of_the_turns_around_them(ada: UserProfile) -> None:
    session = imported(ada)
    cover(session, 1)
    arrived(session, timedelta(days=31))
    assert retain().archived_turns == 1
    assert contents(ada, "harpsichord")[:2] == list(TEXTS[:2])
    assert TEXTS[0] in contents(ada, "Lyon")[:4]


def test_retracted_system_and_platform_turns_are_not_found(ada: UserProfile) -> None:
    session = imported(ada, *TEXTS, "The harpsichord is in a context.")
    session.messages.filter(sequence=6).update(role="tool", tool_name="get_context")
    session.messages.filter(sequence=0).update(retracted_at=timezone.now())
    session.messages.filter(sequence=4).update(role="system")
    cover(session, session.message_count)
    arrived(session, timedelta(days=31))
    assert retain().archived_turns == 7
    assert "in a context" not in str(found(ada, "harpsichord")) and TEXTS[0] not in contents(ada, "harpsichord")
    assert TEXTS[4] not in contents(ada, "Trieste")


def test_deleted_turns_are_not_found(ada: UserProfile, settings: Settings) -> None:
    settings.RETENTION = settings.RETENTION.model_copy(update={"action": "delete"})
    session = imported(ada)
    cover(session, 6)
    arrived(session, timedelta(days=31))
    assert retain().deleted_turns == 6
    assert found(ada, "harpsichord") == [] and not session.messages.exists()


def test_row_9_archived_turns_are_found_only_by_their_person(ada: UserProfile, bo: UserProfile) -> None:
    session = archived(ada)
    archived(bo, "Bo has no keyboard.")
    places = [(session.pk, n) for n in range(6)]
    assert found(bo, "harpsichord") == [] and read_archived(bo, places) == {}
    with acting_for("bo", application=DEFAULT):
        assert read_archived(ada, places) == {}
    with acting_for("ada", application=DEFAULT):
        assert read_archived(ada, places) == {(session.pk, n): text for n, text in enumerate(TEXTS)}


def test_row_1_repeating_an_archived_import_adds_nothing(ada: UserProfile) -> None:
    session = archived(ada)
    said = [  # and a turn without a time
        NewMessage("assistant" if n % 2 else "user", text, external_id=f"m{n}") for n, text in enumerate(TEXTS)
    ]
    again = import_sessions([Record("1", SessionRef("ada", "s1"), message) for message in said], application=DEFAULT)
    assert (again.added, again.known, again.rejected) == (0, 6, 0)
    assert session.messages.count() == 6


# --- reading the text ---


def test_a_search_with_archived_turns_takes_one_more_query(ada: UserProfile) -> None:
    imported(ada)
    with CaptureQueriesContext(connection) as before:
        found(ada, "harpsichord")
    Session.objects.all().delete()
    archived(ada)
    with CaptureQueriesContext(connection) as after:
        assert found(ada, "harpsichord")
    assert len(after) == len(before) + 1


@pytest.mark.slow
def test_only_the_needed_part_of_a_large_file_is_read(
    ada: UserProfile, archive_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = archived(ada, *(f"Turn {n} of many, on {'kilns ' * 30}{n * 7919}" for n in range(5_000)))
    archive = Archive.objects.get()
    assert archive.byte_count > 100_000 and len(archive.block_offsets) > 20
    read: list[int] = []

    def counted(self: Any, size: int) -> bytes:
        read.append(size)
        part: bytes = self.file.read(size)
        return part

    monkeypatch.setattr("django.core.files.base.File.read", counted, raising=False)
    texts = read_archived(ada, [(session.pk, n) for n in (0, 4_998, 4_999)])
    assert sorted(text[:9] for text in texts.values()) == ["Turn 0 of", "Turn 4998", "Turn 4999"]
    assert 0 < sum(read) <= 3 * CHUNK_BYTES
    assert read_archived(ada, []) == {}


@pytest.mark.parametrize("damage", ["missing", "cut", "changed"])
def test_row_38_an_unreadable_file_affects_only_its_own_texts(
    ada: UserProfile, archive_folder: Path, damage: str
) -> None:
    archived(ada)
    imported(ada, "The harpsichord is in the hall.", session_id="s2")
    [path] = files(archive_folder)
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 2] ^= 255
        path.write_bytes(content)
    results = found(ada, "harpsichord")
    assert {"The harpsichord is in the hall.", UNREADABLE} == {result.content for result in results}
    assert with_text(ada, list(Message.objects.archived()))[0].content == UNREADABLE
    there, missing = with_readable_text(ada, Message.objects.order_by("pk"))
    assert [message.content for message in there] == ["The harpsichord is in the hall."] and missing == [(0, 5)]


@pytest.mark.slow
def test_row_38_a_hanging_storage_does_not_delay_a_search(
    ada: UserProfile, archive_folder: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    archived(ada)
    name = f"{__name__}.SlowStorage"
    settings.STORAGES = settings.STORAGES | {"archive": {"BACKEND": name, "OPTIONS": {"location": archive_folder}}}
    monkeypatch.setattr(reading, "SECONDS", 0.2)
    started = time.monotonic()
    assert UNREADABLE in contents(ada, "harpsichord")
    assert time.monotonic() - started < 1


# --- what remains of archived turns ---


@pytest.mark.slow
def test_row_11_archived_turns_of_an_erased_person_leave_no_trace(
    ada: UserProfile, bo: UserProfile, embeddings_server: OpenAIServer, archive_folder: Path, settings: Settings
) -> None:
    settings.EMBEDDING = settings.EMBEDDING.model_copy(update={"turns": True})
    for person, marker in ((ada, "zqwert"), (bo, "zqplok")):
        imported(person, f"The {marker} has a harpsichord.", "It is old.")
    work_off()
    for session in Session.objects.all():
        cover(session, 2)
        arrived(session, timedelta(days=31))
    assert retain().archived_turns == 4
    assert "sessions_app_message" in traces("zqwert", archive_folder)  # the words of the turn
    vectors = TurnEmbedding.objects.count()
    assert not erase_user("ada", application=DEFAULT, actor="test").has_files_left
    assert traces("zqwert", archive_folder) == [] and files(archive_folder / str(ada.pk)) == []
    assert TurnEmbedding.objects.count() == vectors / 2
    assert contents(bo, "harpsichord")[0] == "The zqplok has a harpsichord."


def test_deleting_a_session_deletes_its_archived_turns(ada: UserProfile, archive_folder: Path) -> None:
    session = archived(ada)
    with transaction.atomic():
        delete_session(session, actor="test")
    assert not Message.objects.exists() and found(ada, "harpsichord") == []


def test_a_restored_turn_keeps_its_retraction(ada: UserProfile) -> None:
    session = imported(ada)
    cover(session, 6)
    arrived(session, timedelta(days=31))
    before = fingerprint(session)
    retain()
    session.messages.filter(sequence=2).update(retracted_at=SAID)
    restore_archive(session, actor="test")
    assert session.messages.turns().get(retracted_at=SAID).content == TEXTS[2]
    session.messages.filter(sequence=2).update(retracted_at=None)
    assert fingerprint(session) == before
