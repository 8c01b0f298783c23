"""Settling sessions together has the same result as settling them one by one, with far fewer statements."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Thread
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from moments_app.jobs.process import Lane, names_in
from moments_app.jobs.runner import run_claimed
from moments_app.models import Job, MemoryAtom, MemoryStream, Moment
from moments_app.provenance.coverage import coverage
from moments_app.sessions.sweep import compact_sessions
from sessions_app.models import Event, Message, Session, UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support.jobs import assert_chain_is_whole, assert_each_compacted_turn_is_in_exactly_one_moment
from tests.support.transcript import START, arrived_when_said, talk
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming", "rolling")]

SAID = [
    "I live in Oslo, and my name is Nora. I really like pottery.",
    "I moved to Bergen in May. From now on, please answer in short sentences.",
    "I am allergic to walnuts. My sister Ines lives in Turin.",
    "I really like pottery. I started a new job at the library on Monday.",
    "I moved back to Oslo. I am learning Italian, and I really like pottery.",
]
OWN = {
    "id",
    "user",
    "user_id",
    "session",
    "session_id",
    "job",
    "job_id",
    "moment",
    "stream",
    "created_at",
    "updated_at",
}


def converse(user: UserProfile) -> list[Session]:
    """Create sessions on several days with growing content. One of them ends with a system turn."""
    sessions = []
    for number, text in enumerate(SAID):
        first = START + timedelta(days=(number * 3) % 4)
        said = [
            NewMessage("assistant" if place % 2 else "user", f"{text} That is point {place}.", created_at=first)
            for place in range(4)
        ]
        said += [NewMessage("system", "Be kind.", created_at=first)] * (number == 1)
        sessions.append(arrived_when_said(append(user, f"s{number}", said).session))
    return sessions


def settle_all(user: UserProfile | None = None) -> int:
    """Queue and run everything that is due, as a worker does; return how many jobs were claimed."""
    compact_sessions()
    if user:
        Job.objects.open().exclude(user=user).delete()
    taken, last = 0, Job.FIRST_SUBJECT
    while job := Job.objects.claim_next(names_in(Lane.BULK), after=last):
        last, taken = job.subject, taken + 1
        run_claimed(job)
    return taken


def told(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in OWN and not name.endswith("_at")}


def rows(found: Any, *names: str) -> list[dict[str, Any]]:
    return [told(row) for row in found.order_by("pk").values(*names)]


def left_of(user: UserProfile) -> dict[str, Any]:
    """Return everything that settling a person's sessions leaves, without the names of person and moments."""
    events = Message.objects.for_user(user).partitions().order_by("session__session_id")
    payloads = [
        {**event.payload, "user_key": "", "created_at": "", "last_n_moment_keys": []}
        for event in events
        if event.payload
    ]
    numbers = dict(Message.objects.for_user(user).values_list("pk", "session__session_id"))

    def sources(pks: list[int]) -> list[str]:
        return sorted(numbers[pk] for pk in pks)

    jobs = Job.objects.for_user(user).exclude(process="count_words").exclude(status="skipped")
    log = Event.objects.filter(user_pk=user.pk).exclude(type="messages_appended").order_by("session_pk", "type")
    return {
        "moments": rows(
            Moment.objects.for_user(user).defer("search_vector"),
            *(
                field.name
                for field in Moment._meta.concrete_fields
                if field.name not in {"search_vector", *OWN, "source_session"}
            ),
        ),
        "profile": UserProfile.objects.filter(pk=user.pk).values("summary", "interests", "preferred_topics").get(),
        "atoms": sorted(
            (
                atom.stream.stream_type,
                atom.atom_type,
                atom.content,
                atom.state,
                atom.worth,
                sources(atom.source_message_ids),
            )
            for atom in MemoryAtom.objects.filter(user=user).select_related("stream")
        ),
        "events": payloads,
        "sessions": rows(
            Session.objects.for_user(user),
            *(field.name for field in Session._meta.concrete_fields if field.name not in {*OWN, "retraction_count"}),
        ),
        "jobs": sorted(
            rows(jobs, "process", "status", "force", "params", "attempts", "requested_by", "result"), key=str
        ),
        "log": [(event.type, event.payload) for event in log],
        "held": list(
            Message.objects.for_user(user)
            .turns()
            .order_by("session__session_id", "sequence")
            .values_list("sequence", "moment__key")
        ),
    }


def test_a_value_that_is_true_again_in_a_later_session_is_current(ada: UserProfile) -> None:
    for number, text in enumerate(["I live in Oslo.", "I moved to Bergen.", "I live in Oslo."]):
        said = [NewMessage(role, text, created_at=START + timedelta(days=number)) for role in ("user", "assistant")]
        arrived_when_said(append(ada, f"s{number}", said).session)
    assert settle_all() == 1
    homes = MemoryAtom.objects.filter(attribute="home", stream__stream_type="user").in_order()
    assert [(home.value, home.state) for home in homes] == [("Oslo", "ended"), ("Bergen", "ended"), ("Oslo", "active")]


@pytest.mark.slow
def test_settling_together_writes_the_same_as_settling_separately(
    ada: UserProfile, bo: UserProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    converse(ada)
    converse(bo)
    monkeypatch.setattr("moments_app.sessions.settle.MAX_SESSIONS", 1)
    settle_all(bo)
    monkeypatch.undo()
    assert settle_all(ada) == 1
    together, alone = left_of(ada), left_of(bo)
    for what, left in alone.items():
        assert together[what] == left, what
    assert together["profile"]["summary"]
    assert together["atoms"]
    for session in Session.objects.all():
        assert session.status == "cleared"
        assert_each_compacted_turn_is_in_exactly_one_moment(session)
    assert_chain_is_whole(ada)
    assert coverage().is_whole
    for derived in (*Moment.objects.for_user(ada), *MemoryAtom.objects.filter(user=ada)):
        assert derived.job is not None
        assert derived.job.session_id == derived.source_session_id


@pytest.mark.slow
def test_many_sessions_take_few_more_queries_than_one(ada: UserProfile, bo: UserProfile) -> None:
    talk(ada, 4)
    for number in range(8):
        talk(bo, 4, session_id=f"s{number}")
    counts = {}
    for user in (ada, bo):
        compact_sessions()
        Job.objects.exclude(user=user).update(run_after=timezone.now() + timedelta(days=1))
        with CaptureQueriesContext(connection) as queries:
            assert settle_all() == 1
        counts[user.user_id] = len(queries)
        Job.objects.update(run_after=timezone.now())
    assert not Session.objects.exclude(status="cleared").exists()
    assert counts["bo"] <= counts["ada"] + 5, counts


@pytest.mark.slow
def test_the_size_of_a_batch_is_limited(ada: UserProfile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moments_app.sessions.quiet_sessions.MAX_TURNS", 9)
    for number in range(5):
        talk(ada, 4, session_id=f"s{number}")
    assert settle_all() == 3
    assert not Session.objects.exclude(status="cleared").exists()


@contextmanager
def settling_meanwhile(locked: Session) -> Iterator[Thread]:
    """Let a worker settle everything until it waits for a session that is locked until the block ends."""

    def work() -> None:
        try:
            settle_all()
        finally:
            connections.close_all()

    worker = Thread(target=work)
    with transaction.atomic():
        Session.objects.locked().get(pk=locked.pk)
        worker.start()
        wait_until(lambda: bool(_waiting()))
        yield worker
    worker.join()


def _waiting() -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")  # otherwise the transaction repeats its first result
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            " AND query LIKE '%sessions_app_session%'"
        )
        return [pid for (pid,) in cursor]


@pytest.mark.slow
def test_row_25_a_batch_whose_connection_is_lost_is_rolled_back_and_done_once(ada: UserProfile) -> None:
    sessions = [talk(ada, 4, session_id=f"s{number}") for number in range(3)]
    compact_sessions()
    with settling_meanwhile(sessions[1]), connection.cursor() as cursor:
        for pid in _waiting():
            cursor.execute("SELECT pg_terminate_backend(%s)", [pid])
        assert not Moment.objects.exists()
    Job.objects.open().update(run_after=timezone.now())
    settle_all()
    assert set(Session.objects.values_list("status", flat=True)) == {"cleared"}
    assert Message.objects.partitions().count() == Moment.objects.count() == 3
    assert not Job.objects.exclude(status="completed").exclude(process="count_words").exists()


@pytest.mark.slow
def test_an_active_session_is_skipped_and_the_others_are_settled(ada: UserProfile) -> None:
    sessions = [talk(ada, 4, session_id=f"s{number}") for number in range(3)]
    compact_sessions()
    with settling_meanwhile(sessions[1]):
        append(ada, "s1", [NewMessage("user", "I am back.")])
    assert dict(Session.objects.values_list("session_id", "status")) == {
        "s0": "cleared",
        "s1": "active",
        "s2": "cleared",
    }
    assert Job.objects.get(process="settle", session=sessions[1]).status == Job.Status.SKIPPED


@pytest.mark.slow
def test_a_step_requested_meanwhile_causes_no_error_and_all_are_settled(
    ada: UserProfile, caplog: pytest.LogCaptureFixture
) -> None:
    sessions = [talk(ada, 4, session_id=f"s{number}") for number in range(3)]
    compact_sessions()
    with settling_meanwhile(sessions[1]):
        Job.objects.request("form_memories", sessions[1], requested_by="schedule")
    settle_all()
    assert "job error" not in caplog.text
    assert set(Session.objects.values_list("status", flat=True)) == {"cleared"}


@pytest.mark.slow
def test_a_failing_session_does_not_block_the_others(ada: UserProfile) -> None:
    sessions = [talk(ada, 4, session_id=f"s{number}") for number in range(3)]
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE sessions_app_session ADD CONSTRAINT never_cleared"
            f" CHECK (id <> {sessions[1].pk} OR status <> 'cleared')"
        )
    try:
        settle_all()
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE sessions_app_session DROP CONSTRAINT never_cleared")
    assert dict(Session.objects.values_list("session_id", "status")) == {
        "s0": "cleared",
        "s1": "active",
        "s2": "cleared",
    }
    waiting = Job.objects.get(process="settle", session=sessions[1])
    assert (waiting.status, waiting.attempts) == (Job.Status.QUEUED, 1)
    assert "IntegrityError" in waiting.error


@pytest.mark.slow
def test_row_9_only_sessions_of_one_person_are_settled_together(ada: UserProfile, bo: UserProfile) -> None:
    for user in (ada, bo):
        talk(user, 4, session_id="s1")
        talk(user, 4, session_id="s2")
    assert settle_all() == 2
    for moment in Moment.objects.all():
        assert moment.job is not None
        assert moment.source_session is not None
        assert moment.user_id == moment.job.user_id == moment.source_session.user_id
    assert not MemoryStream.objects.exclude(session=None).exclude(session__user=ada).filter(user=ada).exists()
