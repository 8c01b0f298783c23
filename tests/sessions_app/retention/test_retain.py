"""Turns that are old and covered leave the transcript, and can be restored unchanged."""

import gzip
import hashlib
import json
import random
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django.fixtures import Settings

from memoryproject.database.verification import archive_problems
from moments_app.models import EmbeddingModel, Moment
from moments_app.models.embedding import TurnEmbedding
from sessions_app.models import ApiKey, Archive, Event, Message, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.models.searched import source_fields
from sessions_app.people.erase import erase_user
from sessions_app.people.export import CannotExport, export_user
from sessions_app.retention import retain as process
from sessions_app.retention.archive_files import ArchiveError
from sessions_app.retention.read_archived import UNREADABLE, read_archived
from sessions_app.retention.restore import CannotRestore, restore_archive
from sessions_app.retention.retain import retain
from sessions_app.signals import turns_overdue
from sessions_app.transcript.append import IdTaken, NewMessage, append
from sessions_app.transcript.load import load_session_messages, page_of_messages
from tests.support.api import Api
from tests.support.commands import printed
from tests.support.concurrency import at_once
from tests.support.killed import EVERY_KILL, FINISHED, KILLED, Killed, wait_for_backends_to_end
from tests.support.processes import database_url
from tests.support.retention import (
    archived_without_rows,
    as_earlier_releases_did,
    cover,
    covered_session,
    files,
    fingerprint,
    in_archives,
    in_table,
    named,
    restore_all,
    rewrite_queued,
    texts_in,
)
from tests.support.transcript import arrived_when_said, talk, turns

pytestmark = pytest.mark.django_db(transaction=True)


# Add many turns to a session that are too recent to archive; add a vector for each turn.
MORE_TURNS = """
INSERT INTO sessions_app_message
    (session_id, user_id, sequence, kind, role, tool_name, content, tokens, created_at, metadata)
SELECT session_id, user_id, n, kind, role, tool_name, content, tokens, now(), metadata
FROM sessions_app_message, generate_series(1, %s) AS n WHERE session_id = %s AND sequence = 0
"""
ALL_VECTORS = """
INSERT INTO moments_app_turnembedding (source_id, model_id, user_id, said_at, vector, created_at)
SELECT id, %s, user_id, created_at, '[1,2]', now() FROM sessions_app_message
"""


@pytest.fixture(autouse=True)
def folder(settings: Settings, tmp_path: Path) -> Path:
    """Return the folder of the archives."""
    settings.STORAGES = settings.STORAGES | {"archive": settings.RETENTION.storage(tmp_path)}
    return tmp_path / "archive"


@pytest.fixture
def overdue() -> Iterator[list[Session]]:
    """Record the sessions for which settling is requested."""
    asked: list[Session] = []

    def ask(session: Session, **_: Any) -> None:
        asked.append(session)

    turns_overdue.connect(ask)
    yield asked
    turns_overdue.disconnect(ask)


def sequences(session: Session) -> list[int]:
    return list(session.messages.turns().order_by("sequence").values_list("sequence", flat=True))


def restored(session: Session) -> str:
    """Restore all archives of the session; return its turns."""
    restore_archive(session, actor="test")
    return fingerprint(session)


# --- turns that are archived ---


def test_old_covered_turns_are_archived_by_month_and_restored_unchanged(ada: UserProfile, folder: Path) -> None:
    session = covered_session(ada, 30, live=3)
    before, lines = fingerprint(session), in_table(session)
    done = retain()
    assert (done.sessions, done.archived_turns, done.failed_sessions, done.deleted_turns) == (1, 30, 0, 0)
    assert sequences(session) == [30, 31, 32]
    assert in_archives(session) == lines[:30]
    assert [path.stat().st_mode & 0o777 for path in files(folder)] == [0o600, 0o600]
    assert done.archived_bytes == sum(path.stat().st_size for path in files(folder))
    assert Event.objects.get(type="memory_compaction_completed").payload["archived_turns"] == 30
    session.refresh_from_db()
    assert (session.kept_from_sequence, session.message_count, session.last_sequence) == (30, 33, 32)
    assert restored(session) == before
    assert not Archive.objects.exists() and not files(folder)
    session.refresh_from_db()
    assert session.kept_from_sequence == 0 and session.restored_at


def test_an_archive_is_plain_json_with_every_column_and_no_text_in_its_name(ada: UserProfile, folder: Path) -> None:
    covered_session(ada, 2)
    retain()
    [first, second] = files(folder)
    assert first.parent == second.parent == folder / str(ada.pk)
    assert re.fullmatch(r"\d{4}-\d{2}-\d{20}\.jsonl\.gz", first.name)
    [turn] = map(json.loads, gzip.decompress(first.read_bytes()).splitlines())
    assert turn["content"].startswith("Turn 0 🏺") and turn["external_id"] == "m0"
    assert datetime.fromisoformat(turn["created_at"]).strftime("%Y-%m") == first.name[:7]
    assert turn.keys() == {field.column for field in source_fields(Message)}
    assert second.name > first.name


@pytest.mark.slow
def test_a_month_archived_in_several_runs_is_one_file(ada: UserProfile, folder: Path) -> None:
    session = covered_session(ada, 40)
    before = fingerprint(session)
    for covered in (10, 25, 26, 40):
        Session.objects.update(summarised_sequence=covered - 1)
        grown = sum(path.stat().st_size for path in files(folder))
        assert retain().archived_bytes == sum(path.stat().st_size for path in files(folder)) - grown
        assert sequences(session) == list(range(covered, 40))
        assert {path.relative_to(folder).as_posix() for path in files(folder)} == {
            a.name for a in Archive.objects.all()
        }
    assert len(files(folder)) == 2
    assert restored(session) == before


def test_equal_turns_result_in_equal_bytes(ada: UserProfile, folder: Path) -> None:
    session = covered_session(ada, 20)
    retain()
    first = [path.read_bytes() for path in files(folder)]
    restore_archive(session, actor="test")
    Session.objects.update(restored_at=None)
    retain()
    assert [path.read_bytes() for path in files(folder)] == first


@pytest.mark.slow
def test_sessions_of_a_person_share_one_file_per_month(ada: UserProfile, folder: Path) -> None:
    sessions = [covered_session(ada, 6, session_id=f"s{number}") for number in range(5)]
    before, exported = [fingerprint(session) for session in sessions], messages_in_export("ada")
    done = retain()
    assert (done.sessions, done.archived_turns, len(files(folder))) == (5, 30, 2)
    assert messages_in_export("ada") == exported and list(archive_problems()) == []
    assert done.archived_bytes == sum(path.stat().st_size for path in files(folder))
    for path in files(folder):
        lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        assert [line["session_id"] for line in lines] == sorted(3 * [session.pk for session in sessions])
    for session, turns_of_it in reversed(list(zip(sessions, before, strict=True))):
        assert restored(session) == turns_of_it
        rewrite_queued()
    assert not files(folder) and not Archive.objects.exists()


def test_row_9_two_people_never_share_a_file(ada: UserProfile, bo: UserProfile, folder: Path) -> None:
    for number in range(3):
        for person in (ada, bo):
            covered_session(person, 4, session_id=f"s{number}")
    retain()
    assert len(files(folder)) == 4
    for path in files(folder):
        lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        assert {str(line["user_id"]) for line in lines} == {path.parent.name}
    assert {archive.name.partition("/")[0] for archive in ada.archives.all()} == {str(ada.pk)}


def test_a_growing_month_moves_to_another_file_and_other_sessions_stay(ada: UserProfile, folder: Path) -> None:
    grows, stays = (covered_session(ada, 8, session_id=name) for name in ("grows", "stays"))
    before = fingerprint(grows), fingerprint(stays)
    Session.objects.update(summarised_sequence=1)
    assert retain().archived_turns == 4
    [first] = files(folder)
    Session.objects.filter(pk=grows.pk).update(summarised_sequence=7)
    assert retain().archived_turns == 6
    assert len(files(folder)) == 3 and texts_in(folder).count("Turn 1 ") == 3
    rewrite_queued()
    assert len(files(folder)) == 3 and texts_in(folder).count("Turn 1 ") == 2 and not first.exists()
    assert {path.relative_to(folder).as_posix() for path in files(folder)} == named()
    assert (restored(grows), restored(stays)) == before


def test_many_sessions_of_a_person_are_archived_in_batches(
    ada: UserProfile, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = [4, 1, 2, 1, 1, 1, 1]
    sessions = [covered_session(ada, count, session_id=f"s{n}") for n, count in enumerate(counts)]
    monkeypatch.setattr(process, "MAX_GROUP_TURNS", 3)
    monkeypatch.setattr(process, "MAX_GROUP_SESSIONS", 2)
    assert retain().archived_turns == sum(counts)
    together = [{archive.session_id for archive in Archive.objects.filter(name=name)} for name in named()]
    keys = [session.pk for session in sessions]
    expected = [{keys[0]}, {keys[1], keys[2]}, {keys[3], keys[4]}, {keys[5], keys[6]}]
    assert sorted(set(map(frozenset, together)) - {frozenset({keys[2]})}, key=min) == expected


def test_settings_can_delete_turns_or_keep_them(ada: UserProfile, settings: Settings, folder: Path) -> None:
    session = covered_session(ada, 30, live=2)
    settings.RETENTION = settings.RETENTION.model_copy(update={"action": "off"})
    assert retain().sessions == 0 and len(sequences(session)) == 32
    settings.RETENTION = settings.RETENTION.model_copy(update={"action": "delete"})
    assert retain(dry_run=True).deleted_turns == 30 and len(sequences(session)) == 32
    done = retain()
    assert (done.deleted_turns, done.archived_turns, done.archived_bytes) == (30, 0, 0)
    assert sequences(session) == [30, 31] and not files(folder)


def test_a_dry_run_reports_the_same_counts_and_changes_nothing(
    ada: UserProfile, folder: Path, overdue: list[Session]
) -> None:
    session = covered_session(ada, 30)
    Session.objects.update(summarised_sequence=9)
    retain()
    Session.objects.update(summarised_sequence=19)
    before, names = fingerprint(session), files(folder)
    dry = retain(dry_run=True)
    assert (fingerprint(session), files(folder), len(overdue)) == (before, names, 1)
    wet = retain()
    assert dry.counts() | {"seconds": 0} == wet.counts() | {"seconds": 0}
    assert wet.archived_turns == 10 and len(overdue) == 2


# --- turns that stay ---


def test_uncovered_turns_are_kept_and_settling_is_requested(ada: UserProfile, overdue: list[Session]) -> None:
    session = covered_session(ada, 20)
    session.messages.turns().filter(sequence=12).update(moment=None)
    done = retain()
    assert (done.archived_turns, done.overdue_sessions) == (12, 1)
    assert overdue == [session]
    assert sequences(session)[0] == 12


def test_turns_after_the_last_summary_or_digest_are_kept(ada: UserProfile) -> None:
    session = covered_session(ada, 20)
    for covered, expected in ((None, 0), (7, 8)):
        Session.objects.update(summarised_sequence=covered)
        assert retain().overdue_sessions == 1
        assert sequences(session)[0] == expected


def test_the_live_window_is_kept_whatever_its_age(ada: UserProfile) -> None:
    session = covered_session(ada, 20)
    Session.objects.update(live_from_sequence=15)
    assert retain().archived_turns == 15
    assert sequences(session) == [15, 16, 17, 18, 19]


def test_a_retracted_turn_counts_as_covered(ada: UserProfile) -> None:
    session = covered_session(ada, 10)
    before = session.messages.turns().filter(sequence=3)
    before.update(moment=None, retracted_at=timezone.now())
    unchanged = fingerprint(session)
    assert retain().archived_turns == 10
    assert restored(session) == unchanged


def test_a_session_under_legal_hold_is_counted_and_not_changed(ada: UserProfile, bo: UserProfile) -> None:
    held, other = covered_session(ada, 5), covered_session(bo, 5)
    held.hold(True, actor="test")
    done = retain()
    assert (done.sessions, done.held_sessions) == (1, 1)
    assert len(sequences(held)) == 5 and not sequences(other)


def test_restored_turns_are_kept_for_as_many_days_as_new_ones(ada: UserProfile) -> None:
    session = covered_session(ada, 5)
    retain()
    restore_archive(session, actor="test")
    assert retain().sessions == 0
    Session.objects.update(restored_at=timezone.now() - timedelta(days=31))
    assert retain().sessions == 1


def test_a_session_restored_after_it_was_selected_is_kept(ada: UserProfile) -> None:
    session = covered_session(ada, 5)
    restored_now = "UPDATE sessions_app_session SET restored_at = now()"
    with changed_before("pg_try_advisory_xact_lock(hashtextextended('archive',", restored_now):
        assert retain().sessions == 0
    assert len(sequences(session)) == 5


def test_recent_turns_are_kept(ada: UserProfile) -> None:
    session = append(ada, "s1", [NewMessage("user", str(n)) for n in range(5)]).session
    cover(session, 5)
    assert retain().counts() | {"seconds": 0} == process.RetentionResult().counts()
    assert len(sequences(session)) == 5


@pytest.mark.slow
def test_row_13_turns_with_shuffled_times_are_archived_by_sequence_in_order(ada: UserProfile) -> None:
    chance = random.Random(13)
    now = timezone.now()
    old = [now - timedelta(days=chance.randrange(31, 20_000), microseconds=chance.randrange(10**6)) for _ in range(60)]
    times = [*old[:40], now, *old[40:]]
    session = append(ada, "s1", [NewMessage("user", str(n), created_at=at) for n, at in enumerate(times)]).session
    arrived_when_said(session)
    cover(session, len(times))
    before, lines = fingerprint(session), in_table(session)
    assert retain().archived_turns == 40
    assert sequences(session) == list(range(40, 61))
    assert sorted(in_archives(session)) == sorted(lines[:40])
    assert {a.month for a in Archive.objects.all()} == {at.astimezone(UTC).date().replace(day=1) for at in times[:40]}
    # Restore one of many months, between others that stay archived, and archive it again.
    one = Archive.objects.order_by("first_sequence")[3]
    restore_archive(session, actor="test", month=one.month)
    Session.objects.update(restored_at=None)
    assert retain().archived_turns == one.turn_count
    assert restored(session) == before


# --- no turn is lost ---


def test_a_turn_that_changes_while_being_archived_is_kept(ada: UserProfile, folder: Path) -> None:
    session = covered_session(ada, 5)
    withdraw = "UPDATE sessions_app_message SET retracted_at = now() WHERE sequence = 2"
    with changed_before("FOR UPDATE OF", withdraw):
        assert retain().sessions == 0
    assert len(sequences(session)) == 5 and not files(folder) and not Archive.objects.exists()
    assert retain().archived_turns == 5
    [line] = [json.loads(line) for line in in_archives(session) if json.loads(line)["sequence"] == 2]
    assert line["retracted_at"]


def test_a_session_that_changes_does_not_keep_others_from_being_archived(ada: UserProfile, folder: Path) -> None:
    first, changed, last = (covered_session(ada, 4, session_id=name) for name in ("s1", "s2", "s3"))
    hold = f"UPDATE sessions_app_session SET legal_hold = true WHERE id = {changed.pk}"
    with changed_before("FOR NO KEY UPDATE", hold):
        done = retain()
    assert (done.sessions, done.archived_turns, done.held_sessions) == (2, 8, 1)
    assert [len(sequences(session)) for session in (first, changed, last)] == [0, 4, 0]
    assert {path.relative_to(folder).as_posix() for path in files(folder)} == named()


@pytest.mark.parametrize("change", ["legal_hold = true", "live_from_sequence = 0"])
def test_a_session_held_or_reopened_during_the_run_is_not_archived(ada: UserProfile, folder: Path, change: str) -> None:
    session = covered_session(ada, 5)
    with changed_before("FOR NO KEY UPDATE", f"UPDATE sessions_app_session SET {change}"):
        assert retain().sessions == 0
    assert len(sequences(session)) == 5 and not files(folder)


@contextmanager
def changed_before(words: str, change: str) -> Iterator[None]:
    """Make a change from another connection just before the first statement that contains the words."""
    changes = [change]

    def execute(execute: Any, sql: str, *arguments: Any) -> Any:
        if words in sql and changes:
            sql_of_another = changes.pop()
            at_once(lambda _: connection.cursor().execute(sql_of_another), 1)
        return execute(sql, *arguments)

    with connection.execute_wrapper(execute):
        yield
    assert not changes


@pytest.mark.slow
def test_concurrent_runs_archive_each_turn_once(ada: UserProfile, bo: UserProfile) -> None:
    sessions = [covered_session(user, 8, session_id=f"s{n}") for n in range(6) for user in (ada, bo)]
    before = [fingerprint(session) for session in sessions]
    done = at_once(lambda _: retain(), 4)
    assert sum(each.archived_turns for each in done) == 12 * 8
    assert sum(each.sessions for each in done) == 12
    assert [restored(session) for session in sessions] == before


@pytest.mark.slow(seconds=40)
def test_row_16_archiving_killed_between_any_two_steps_loses_nothing(ada: UserProfile, folder: Path) -> None:
    variables = {"RETENTION__STORAGE_OPTIONS": json.dumps({"location": str(folder)})}
    steps = 0
    with Killed("sessions_app.retention.retain.retain", **variables) as killed:
        ended = KILLED
        while ended == KILLED:
            steps += 1 if EVERY_KILL else 7  # of about sixty
            sessions = [covered_session(ada, 4, session_id=f"{name}{steps}") for name in ("grows", "stays")]
            Session.objects.filter(user=ada).update(summarised_sequence=0)
            retain()
            rewrite_queued()
            assert {path.relative_to(folder).as_posix() for path in files(folder)} == named()
            Session.objects.filter(pk=sessions[0].pk).update(summarised_sequence=3)
            sessions.append(covered_session(ada, 4, session_id=f"comes{steps}"))
            whole = [in_archives(session) + in_table(session) for session in sessions]
            ended = killed.run(steps)
            wait_for_backends_to_end()
            for session, everything in zip(sessions, whole, strict=True):
                assert sorted(in_table(session) + in_archives(session)) == sorted(everything)
            Session.objects.filter(pk=sessions[1].pk).update(summarised_sequence=3)
            retain()
            assert [in_archives(session) for session in sessions] == whole
            restore_all()
            rewrite_queued()
            assert [in_table(session) for session in sessions] == whole
            Session.objects.all().delete()
    assert ended == FINISHED
    assert steps > 40


@pytest.mark.slow
def test_row_16_restoring_killed_between_any_two_steps_loses_nothing(ada: UserProfile, folder: Path) -> None:
    variables = {"RETENTION__STORAGE_OPTIONS": json.dumps({"location": str(folder)})}
    session = covered_session(ada, 12)
    everything = in_table(session)
    steps, ended = 0, KILLED
    with Killed("tests.support.retention.restore_all", **variables) as killed:
        while ended == KILLED:
            steps += 1 if EVERY_KILL else 3
            Session.objects.update(restored_at=None)
            retain()
            assert in_archives(session) == everything
            ended = killed.run(steps)
            wait_for_backends_to_end()
            assert sorted(in_table(session) + in_archives(session)) == sorted(everything)
    assert ended == FINISHED
    assert steps > 15


@pytest.mark.parametrize(("count", "noisy"), [(4, 40_000), (30, 2_800)])  # the second file also fails when it is closed
def test_row_16_on_a_full_disk_a_session_is_unchanged_and_others_are_archived(
    ada: UserProfile, bo: UserProfile, folder: Path, count: int, noisy: int
) -> None:
    noise = random.Random(16)
    large = append(
        ada,
        "large",
        [
            NewMessage("user", noise.randbytes(noisy).hex() + 30_000 * "x", created_at=t.created_at)
            for t in turns(count)
        ],
    ).session
    arrived_when_said(large)
    cover(large, count)
    small, before = covered_session(bo, 4), fingerprint(large)
    out = StringIO()
    with largest_file(60_000), pytest.raises(CommandError, match=r"session large: .*too large") as raised:
        call_command("run_schedule", "retain", stdout=out)
    assert "1 sessions failed and were not changed" in str(raised.value)
    assert (fingerprint(large), len(files(folder))) == (before, 2)
    assert not sequences(small)
    event = Event.objects.get(type="memory_compaction_failed")
    assert (event.session_pk, event.user_pk) == (large.pk, ada.pk)
    call_command("run_schedule", "retain", stdout=out)
    assert restored(large) == before


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Limit the files of this process to this many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_row_16_nothing_is_added_to_a_month_whose_file_is_damaged(ada: UserProfile, folder: Path) -> None:
    session = covered_session(ada, 10)
    Session.objects.update(summarised_sequence=2)
    retain()
    [path] = files(folder)
    path.write_bytes(path.read_bytes()[:-1])
    Session.objects.update(summarised_sequence=9)
    other = covered_session(ada, 1, session_id="other")
    done = retain()
    assert done.failed_sessions == 1 and path.name in done.failures[0]
    assert len(sequences(session)) == 7 and path in files(folder)
    assert not sequences(other)


def test_files_left_by_a_crash_are_removed_by_the_next_run_of_the_person(ada: UserProfile, folder: Path) -> None:
    session = covered_session(ada, 4)
    strays = [folder / f"{ada.pk}/2020-01-7.jsonl.gz", folder / f"{ada.pk}/{session.pk}/2020-01-7.jsonl.gz"]
    strays[1].parent.mkdir(parents=True)
    for stray in strays:
        stray.write_bytes(b"half a fi")
    retain(dry_run=True)
    assert files(folder) == sorted(strays)
    retain()
    assert len(files(folder)) == 2 and not any(stray.exists() for stray in strays)


def test_row_16_damage_in_a_file_affects_only_its_session(ada: UserProfile, folder: Path) -> None:
    first, second = (covered_session(ada, 1, session_id=name) for name in ("s1", "s2"))
    before = fingerprint(first)
    retain()
    [path] = files(folder)
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    [told] = archive_problems()
    assert path.name in told
    with pytest.raises(ArchiveError, match=path.name):
        restore_archive(second, actor="test")
    assert restored(first) == before


# --- restoring ---


@pytest.mark.parametrize("damage", ["changed", "truncated", "missing", "exchanged"])
def test_row_16_a_damaged_archive_is_named_and_not_restored(ada: UserProfile, folder: Path, damage: str) -> None:
    session = covered_session(ada, 10)
    retain()
    first, second = files(folder)
    content = bytearray(second.read_bytes())
    if damage == "changed":
        content[len(content) // 2] ^= 1
        second.write_bytes(content)
    elif damage == "truncated":
        second.write_bytes(content[:-20])
    elif damage == "missing":
        second.unlink()
    else:
        second.write_bytes(first.read_bytes())
    with pytest.raises(CommandError, match=second.name):
        call_command("restore_archive", "ada", "s1", stdout=StringIO())
    session.refresh_from_db()
    assert (sequences(session), session.kept_from_sequence, session.restored_at) == ([], 10, None)
    assert Archive.objects.count() == 2 and first.exists()


@pytest.mark.parametrize("line", ["{}", "[]", "not JSON", '{"session_id": 1}'])
def test_a_file_without_turns_of_the_session_is_not_restored(ada: UserProfile, folder: Path, line: str) -> None:
    session = covered_session(ada, 1)
    retain()
    archive = Archive.objects.get()
    content = gzip.compress(line.encode() + b"\n")
    (folder / archive.name).write_bytes(content)
    Archive.objects.update(sha256=hashlib.sha256(content).hexdigest())
    with pytest.raises(ArchiveError, match="line 1 is not"):
        restore_archive(session, actor="test")


def test_one_month_can_be_restored_by_command(ada: UserProfile, folder: Path) -> None:
    session = covered_session(ada, 10)
    retain()
    second = Archive.objects.order_by("month")[1]
    out = printed("restore_archive", "ada", "s1", month=f"{second.month:%Y-%m}")
    assert "5 turns restored from 1 files" in out
    assert sequences(session) == [5, 6, 7, 8, 9]
    assert Event.objects.get(type="archive_restored").payload == {"files": 1, "turns": 5}
    for arguments, told in (
        (["ada", "s1", "--month", "2001-01"], "no archive of 2001-01"),
        (["ada", "s1", "--month", "may"], "--month must look like 2026-03"),
        (["ada", "s2"], "ada has no session s2"),
        (["bo", "s1"], "bo has no session s1"),
    ):
        with pytest.raises(CommandError, match=told):
            call_command("restore_archive", *arguments, stdout=StringIO())


def test_a_turn_whose_moment_was_deleted_is_restored_without_it(ada: UserProfile) -> None:
    session = covered_session(ada, 4)
    retain()
    Moment.objects.get().delete()
    restore_archive(session, actor="test")
    assert sequences(session) == [0, 1, 2, 3]
    assert not session.messages.exclude(moment=None).exists()


def test_row_1_an_archived_message_that_is_sent_again_is_known(ada: UserProfile) -> None:
    session = covered_session(ada, 4)
    before, turn = fingerprint(session), session.messages.turns().get(sequence=2)
    retain()
    as_sent = NewMessage(turn.role, turn.content, payload=turn.payload, external_id="m2")
    [(message, created)] = append(ada, "s1", [as_sent]).messages
    assert (message.sequence, created) == (2, False)
    with pytest.raises(IdTaken):
        append(ada, "s1", [replace(as_sent, content="Something else")])
    assert restored(session) == before


def test_only_archived_turns_with_an_external_id_that_are_not_retracted_have_a_hash(ada: UserProfile) -> None:
    session = covered_session(ada, 4)
    turns = session.messages.turns()
    turns.filter(sequence=1).update(external_id=None)
    turns.filter(sequence=2).update(retracted_at=timezone.now())
    retain()
    hashed = session.messages.exclude(said_hash=None).order_by("sequence")
    assert list(hashed.values_list("sequence", flat=True)) == [0, 3]
    restore_archive(session, actor="test")
    assert not hashed.exists()


def test_restoring_reports_an_external_id_that_was_reused(ada: UserProfile) -> None:
    session = covered_session(ada, 4)
    retain()
    archived_without_rows(session)
    append(ada, "s1", [NewMessage("user", "secret text", external_id="m2")])
    with pytest.raises(CannotRestore) as raised:
        restore_archive(session, actor="test")
    assert "external_id" in str(raised.value) and "secret" not in str(raised.value)
    assert sequences(session) == [4]


def test_turns_of_older_files_are_restored_as_if_received_now(ada: UserProfile) -> None:
    session = covered_session(ada, 4)
    times = list(session.messages.order_by("sequence").values_list("created_at", flat=True))
    retain()
    archived_without_rows(session)
    restore_archive(session, actor="test")
    turns = list(session.messages.turns().order_by("sequence"))
    assert [turn.created_at for turn in turns] == times
    assert all(timezone.now() - turn.arrived_at < timedelta(minutes=1) for turn in turns)


@pytest.mark.slow
def test_row_33_archives_of_earlier_releases_still_work(ada: UserProfile, folder: Path) -> None:
    session = covered_session(ada, 12)
    exported, before, lines = messages_in_export("ada"), fingerprint(session), in_table(session)
    Session.objects.update(summarised_sequence=7)
    retain()
    as_earlier_releases_did(session)
    earlier = folder / f"{ada.pk}/{session.pk}"
    assert files(folder) == files(earlier) and len(files(folder)) == 2
    places = [(session.pk, sequence) for sequence in range(8)]
    texts = read_archived(ada, places)
    assert [texts[place] for place in places] == [json.loads(line)["content"] for line in lines[:8]]
    assert messages_in_export("ada") == exported
    assert list(archive_problems()) == []
    Session.objects.update(summarised_sequence=11)
    assert retain().archived_turns == 4
    assert len(files(earlier)) == 1 and len(files(folder)) == 2
    assert messages_in_export("ada") == exported
    assert restored(session) == before and not files(folder)
    Session.objects.update(restored_at=None)
    retain()
    as_earlier_releases_did(session)
    assert not erase_user("ada", application=DEFAULT, actor="test").has_files_left
    assert files(folder) == []


def test_vectors_of_archived_turns_are_kept(ada: UserProfile) -> None:
    session = covered_session(ada, 6)
    model = EmbeddingModel.objects.create(name="m", dimensions=2)
    for turn in session.messages.turns():
        TurnEmbedding.objects.create(source=turn, model=model, user=ada, said_at=turn.created_at, vector=[1, 2])
    Session.objects.update(embedded_sequence=5)
    retain()
    assert TurnEmbedding.objects.count() == 6
    restore_archive(session, actor="test")
    turns = session.messages.turns().values_list("pk", flat=True)
    assert TurnEmbedding.objects.filter(source__in=list(turns)).count() == 6


# --- reads and costs ---


def test_reads_start_at_the_first_turn_that_is_not_archived(ada: UserProfile, service: Api) -> None:
    session = covered_session(ada, 10, live=3)
    session.messages.create(user=ada, sequence=9, kind="partition", role="tool", created_at=timezone.now())
    retain()
    session.refresh_from_db()
    assert [m.sequence for m in load_session_messages(session, 5).messages] == [9, 10, 11, 12]
    assert [m.sequence for m in page_of_messages(session, 5, after=-1).messages] == [10, 11, 12]
    assert service.get("sessions/s1", user_id="ada").json()["kept_from_sequence"] == 10
    append(ada, "s1", [NewMessage("user", "next")])
    assert sequences(session) == [10, 11, 12, 13]


@pytest.mark.slow
def test_pages_of_the_transcript_contain_archived_turns_unchanged(ada: UserProfile, service: Api) -> None:
    session = covered_session(ada, 10, live=3)
    session.messages.create(user=ada, sequence=9, kind="partition", role="tool", created_at=timezone.now())
    session.messages.filter(sequence=4, kind="turn").update(retracted_at=timezone.now())
    places: list[dict[str, Any]] = [{}, {"after": 3}, {"before": 12, "limit": 4}, {"before": 9}, {"compress": True}]
    before = [transcript(service, **place) for place in places]
    assert [len(page["messages"]) for page in before] == [14, 10, 5, 9, 14]
    assert retain().archived_turns == 10
    assert [transcript(service, **place) for place in places] == before
    restore_archive(session, actor="test", month=session.archives.latest("month").month)
    assert [transcript(service, **place) for place in places] == before


def test_a_page_marks_archived_turns_whose_text_cannot_be_read(ada: UserProfile, service: Api, folder: Path) -> None:
    covered_session(ada, 2, live=1)
    retain()
    for file in files(folder):
        file.unlink()
    page = transcript(service)["messages"]
    assert [message["content"] for message in page] == [UNREADABLE, UNREADABLE, "live 0"]
    assert [message["external_id"] for message in page] == ["m0", "m1", None]


def test_pages_of_the_transcript_start_after_deleted_turns(ada: UserProfile, service: Api, settings: Settings) -> None:
    settings.RETENTION = settings.RETENTION.model_copy(update={"action": "delete"})
    covered_session(ada, 10, live=3)
    retain()
    page = transcript(service, after=3)
    assert [m["sequence"] for m in page["messages"]] == [10, 11, 12] and not page["has_more"]


def transcript(service: Api, **place: Any) -> Any:
    """Return a page of Ada's session over REST."""
    return service.get("sessions/s1/messages", user_id="ada", view="all", **place).json()


@pytest.mark.slow
def test_finding_sessions_takes_one_query_per_batch_on_two_indexes(ada: UserProfile, settings: Settings) -> None:
    for number in range(30):
        append(ada, f"young{number}", [NewMessage("user", "x")])
    with CaptureQueriesContext(connection) as queries:
        retain()
    assert len(queries) == 2, [q["sql"] for q in queries]  # the second is the event
    Session.objects.bulk_create(
        Session(user=ada, session_id=f"archived{number}", last_sequence=8, kept_from_sequence=9)
        for number in range(3_000)
    )
    with connection.cursor() as cursor:
        cursor.execute(MORE_TURNS, [10_000, Session.objects.get(session_id="young0").pk])
        cursor.execute("ANALYZE sessions_app_session, sessions_app_message")
        cursor.execute(f"EXPLAIN {queries[0]['sql']}".replace(f"LIMIT {process.SESSIONS_PER_PAGE}", "LIMIT 10"))
        plan = str(cursor.fetchall())
    assert "session_kept" in plan and "message_turn_sequence_unique" in plan


@pytest.mark.slow
def test_each_additional_session_costs_few_statements_and_no_file(ada: UserProfile, folder: Path) -> None:
    took = []
    for count in (2, 12):
        for number in range(count):
            talk(ada, 4, session_id=f"{count}-{number}")
            cover(Session.objects.latest("pk"), 4)
        with CaptureQueriesContext(connection) as queries:
            assert retain().sessions == count
        took.append(len(queries))
        assert len(files(folder)) == len(took)
    assert (took[1] - took[0]) // 10 == 6


@pytest.mark.slow
def test_turns_and_vectors_are_updated_and_deleted_by_index(
    ada: UserProfile, bo: UserProfile, settings: Settings
) -> None:
    session, other = covered_session(ada, 3_000), covered_session(bo, 1)
    model = EmbeddingModel.objects.create(name="m", dimensions=2)
    with connection.cursor() as cursor:
        cursor.execute(MORE_TURNS, [40_000, other.pk])
        cursor.execute(ALL_VECTORS, [model.pk])
        cursor.execute("ANALYZE")
    with CaptureQueriesContext(connection) as queries:
        assert retain().archived_turns == 3_001
    restore_archive(session, actor="test")
    assert "message_turn_sequence_unique" in plan_of(queries, 'UPDATE "sessions_app_message"')
    Session.objects.update(restored_at=None)
    settings.RETENTION = settings.RETENTION.model_copy(update={"action": "delete"})
    with CaptureQueriesContext(connection) as queries:
        assert retain().deleted_turns == 3_000
    vectors = plan_of(queries, 'DELETE FROM "moments_app_turnembedding"')
    assert "turnembedding_unique" in vectors and "Seq Scan" not in vectors
    assert "message_turn_sequence_unique" in plan_of(queries, 'DELETE FROM "sessions_app_message"')


@pytest.mark.slow
def test_archived_and_live_turns_are_found_by_sequence_in_two_indexes(ada: UserProfile, bo: UserProfile) -> None:
    session = covered_session(ada, 300, live=10)
    assert retain().archived_turns == 300
    talk(bo, 1_000)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE sessions_app_message")
    said = Message.objects.all_turns_of(session, sequence__range=(298, 301))
    assert sorted(said.values_list("sequence", flat=True)) == [298, 299, 300, 301]
    assert {"message_turn_sequence_unique", "message_archived"} <= set(re.findall(r"message_\w+", said.explain()))


def plan_of(queries: CaptureQueriesContext, beginning: str) -> str:
    """Return the plan of the first statement that starts like this."""
    sql = next(query["sql"] for query in queries if query["sql"].startswith(beginning))
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {sql}")
        return "\n".join(row[0] for row in cursor)


@pytest.mark.slow
def test_all_sessions_are_archived_with_any_batch_size(ada: UserProfile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "SESSIONS_PER_PAGE", 3)
    monkeypatch.setattr(process, "REMOVAL_BATCH_SIZE", 4)
    sessions = [covered_session(ada, 9, session_id=f"s{n}") for n in range(7)]
    before = [fingerprint(session) for session in sessions]
    assert retain().sessions == 7
    assert [restored(session) for session in sessions] == before


# --- legal hold and deletion ---


def test_a_session_under_legal_hold_cannot_be_deleted(service: Api, ada: UserProfile, folder: Path) -> None:
    session = covered_session(ada, 4)
    retain()
    assert service.patch("sessions/s1", user_id="ada", legal_hold=True).json()["legal_hold"] is True
    refused = service.delete("sessions/s1", user_id="ada")
    assert refused.status_code == 409
    [error] = refused.json()["errors"]
    assert error["code"] == "legal_hold" and "legal hold" in error["detail"]
    assert Session.objects.filter(pk=session.pk).exists() and len(files(folder)) == 2
    assert service.patch("sessions/s1", user_id="ada", legal_hold=False, title="x").json()["title"] == "x"
    assert service.delete("sessions/s1", user_id="ada").status_code == 204
    assert not files(folder) and not Archive.objects.exists()
    assert list(Event.objects.filter(type__startswith="legal_hold").order_by("id").values_list("type", flat=True)) == [
        "legal_hold_set",
        "legal_hold_ended",
    ]


def test_legal_hold_needs_scope_admin(ada: UserProfile) -> None:
    session = covered_session(ada, 1)
    writer = Api(ApiKey.objects.issue("writer", scope="write")[1])
    assert writer.patch("sessions/s1", user_id="ada", legal_hold=True).status_code == 403
    assert writer.patch("sessions/s1", user_id="ada", title="t").status_code == 200
    session.refresh_from_db()
    assert not session.legal_hold


def test_a_session_cannot_be_deleted_while_being_archived(ada: UserProfile, service: Api) -> None:
    session = covered_session(ada, 2)
    with claimed(session):
        refused = service.delete("sessions/s1", user_id="ada")
        assert refused.status_code == 409 and "archived" in refused.json()["errors"][0]["detail"]
        with pytest.raises(CannotRestore, match="Try again"):
            at_once(lambda _: restore_archive(session, actor="test"), 1)
        assert at_once(lambda _: retain().sessions, 1) == [0]
    assert service.delete("sessions/s1", user_id="ada").status_code == 204


@contextmanager
def claimed(session: Session) -> Iterator[None]:
    """Hold the lock on the session's archives from another connection."""
    with psycopg.connect(database_url()) as other:
        other.execute("SELECT pg_advisory_xact_lock(hashtextextended('archive', %s))", [session.pk])
        yield


def messages_in_export(user_id: str) -> list[dict[str, Any]]:
    file = BytesIO()
    export_user(user_id, file, application=DEFAULT)
    with ZipFile(file) as export:
        return [json.loads(line) for line in export.read("messages.jsonl").splitlines()]


def test_an_export_contains_archived_turns_unchanged(ada: UserProfile, folder: Path) -> None:
    covered_session(ada, 30, live=3)
    before = messages_in_export("ada")
    assert retain().archived_turns == 30
    assert messages_in_export("ada") == before
    next(path for path in folder.rglob("*.gz")).write_bytes(b"")
    with pytest.raises(CannotExport, match="SHA-256"):
        export_user("ada", BytesIO(), application=DEFAULT)


@pytest.mark.slow
def test_row_11_erasing_a_person_removes_their_archives(ada: UserProfile, bo: UserProfile, folder: Path) -> None:
    for person in (ada, bo):
        covered_session(person, 10)
    retain()
    (folder / str(ada.pk) / "left").write_text("by a crash")
    theirs = [path for path in files(folder) if path.is_relative_to(folder / str(bo.pk))]
    assert theirs
    assert not erase_user("ada", application=DEFAULT, actor="test").has_files_left
    assert files(folder) == theirs
    assert not (folder / str(ada.pk)).exists()
    assert {archive.user_id for archive in Archive.objects.all()} == {bo.pk}
