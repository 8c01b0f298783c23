"""Stores conversations in a site, and then does the work of workers and schedules."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from benchmarks.clients import Http
from benchmarks.conversations import Conversation
from benchmarks.measures import content_words

BATCH = 100  # turns per request
# The schedules of a minute and of an hour.
OF_A_MINUTE = ("count_words",)
OF_AN_HOUR = ("form_memories", "compact_sessions", "count_words")
OF_A_MONTH = ("retain", "housekeeping")
HOUR, MONTH = timedelta(hours=1), timedelta(days=31)
AT_MOST = 1800  # maximum seconds for the jobs of one command

TurnPlace = tuple[str, int]  # the place of a turn: its session's id and its sequence


class StoredConversation:
    """A stored conversation, with the place, the words and the line of each turn by its id.

    `sources` has the source turns of each statement, by the statement's address.

    Args:
        conversation: The conversation, which has its own person.
        places: The places of its turns by their ids.
    """

    def __init__(self, conversation: Conversation, places: dict[str, TurnPlace]) -> None:
        self.conversation = conversation
        self.places = places
        self.sources: dict[str, frozenset[str]] = {}
        self.turns = {place: turn for turn, place in places.items()}
        self.words = {turn.id: content_words(turn.text) for _session, turn in conversation.turns}
        self.lines = {
            turn.id: f"- {turn.speaker}, {session.at:%Y-%m-%d}: {turn.text}" for session, turn in conversation.turns
        }

    def read_sources(self) -> None:
        """Load the statements that memory currently has."""
        from moments_app.models import MemoryAtom
        from sessions_app.models import Message

        person = {"user__user_id": self.conversation.id}
        rows = Message.objects.filter(**person).values_list("pk", "session__session_id", "sequence")
        turns = {pk: self.turns.get((session, sequence), "") for pk, session, sequence in rows}
        self.sources = {
            atom.uri: frozenset(turns.get(pk, "") for pk in atom.source_message_ids)
            for atom in MemoryAtom.objects.filter(**person)
        }


def store(http: Http, conversation: Conversation) -> StoredConversation:
    """Store a conversation for its own person. Existing turns are not stored twice."""
    places: dict[str, TurnPlace] = {}
    for session in conversation.sessions:
        places |= put_in(http, conversation.id, f"session-{session.n}", conversation.messages(session))
    return StoredConversation(conversation, places)


def put_in(http: Http, user_id: str, session_id: str, messages: Sequence[dict[str, Any]]) -> dict[str, TurnPlace]:
    """Append messages to a person's session. Return the place of each by its `external_id`."""
    places: dict[str, TurnPlace] = {}
    for start in range(0, len(messages), BATCH):
        body = {"user_id": user_id, "messages": messages[start : start + BATCH]}
        answer = json.loads(http.request("POST", f"/api/v1/sessions/{session_id}/messages", body))
        places |= {message["external_id"]: (session_id, message["sequence"]) for message in answer["messages"]}
    return places


def let_a_minute_pass(work: Callable[[], None]) -> None:
    """Do the jobs that appends made due, and count words.

    Args:
        work: Does all due jobs, or waits until a worker has done them.
    """
    work()
    _run(OF_A_MINUTE, work)


def let_an_hour_pass(work: Callable[[], None]) -> None:
    """Settle all sessions, as after an hour without messages."""
    from django.db.models import F

    from sessions_app.models import Session

    work()
    Session.objects.update(last_arrived_at=F("last_arrived_at") - HOUR)
    _run(OF_AN_HOUR, work)


def let_a_month_pass(work: Callable[[], None]) -> None:
    """Archive all turns, as a month after they arrived."""
    from django.db.models import F

    from sessions_app.models import Message

    Message.objects.update(arrived_at=F("arrived_at") - MONTH)
    _run(OF_A_MONTH, work)


def _run(names: Sequence[str], work: Callable[[], None]) -> None:
    """Run schedules, each with the jobs that it queues."""
    from django.core.management import call_command

    for name in names:
        call_command("run_schedule", name, stdout=sys.stderr)
        work()


def wait_for_jobs() -> None:
    """Wait until the worker has done all jobs.

    Raises:
        RuntimeError: A job failed, or the jobs take too long.
    """
    from moments_app.models import Job

    deadline = time.monotonic() + AT_MOST
    while Job.objects.open().exists():
        _check(deadline)
        time.sleep(0.2)
    _check(deadline)


def do_due_jobs() -> None:
    """Do all jobs in this process, because there is no worker.

    Raises:
        RuntimeError: A job failed, or the jobs take too long.
    """
    from moments_app.jobs import runner as run
    from moments_app.models import Job

    deadline = time.monotonic() + AT_MOST
    while Job.objects.open().exists():
        for job in Job.objects.due().order_by("run_after", "pk"):
            run.run_job(job.job_id)
        time.sleep(0 if Job.objects.due().exists() else 0.05)  # some jobs wait for others
        _check(deadline)


def _check(deadline: float) -> None:
    from moments_app.models import Job

    if failed := Job.objects.filter(status=Job.Status.FAILED).first():
        raise RuntimeError(f"{failed.process} failed: {failed.error}")
    if time.monotonic() > deadline:
        raise RuntimeError("The due jobs take too long.")
