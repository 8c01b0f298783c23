"""Storage of conversations in a site, and the work that the worker and the schedule would have done since."""

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.clients import Http
from benchmarks.conversations import Conversation
from benchmarks.measures import content_words

BATCH = 100  # turns a request
# What the schedule runs.
OF_AN_HOUR = ("count_words", "form_memories", "compact_sessions")
OF_THE_NIGHT = ("retain", "housekeeping")
AT_MOST = 1800  # most seconds for the jobs of one command

TurnPlace = tuple[str, int]  # the place of a turn: its session's id and its sequence


class StoredConversation:
    """A conversation in the site, with the place, the words and the line of each turn by its id.

    Args:
        conversation: The conversation, of a person of its own.
        places: The places of its turns by their ids.
    """

    def __init__(self, conversation: Conversation, places: dict[str, TurnPlace]) -> None:
        self.conversation = conversation
        self.places = places
        self.turns = {place: turn for turn, place in places.items()}
        self.words = {turn.id: content_words(turn.text) for _session, turn in conversation.turns}
        self.lines = {
            turn.id: f"- {turn.speaker}, {session.at:%Y-%m-%d}: {turn.text}" for session, turn in conversation.turns
        }


def store(http: Http, conversation: Conversation) -> StoredConversation:
    """Store a conversation for a person of its own. Turns that are there already are not stored twice."""
    places: dict[str, TurnPlace] = {}
    for session in conversation.sessions:
        places |= put_in(http, conversation.id, f"session-{session.n}", conversation.messages(session))
    return StoredConversation(conversation, places)


def put_in(http: Http, user_id: str, session_id: str, messages: Sequence[dict[str, Any]]) -> dict[str, TurnPlace]:
    """Append messages to a person's session, and return the place of each by its `external_id`."""
    places: dict[str, TurnPlace] = {}
    for start in range(0, len(messages), BATCH):
        body = {"user_id": user_id, "messages": messages[start : start + BATCH]}
        answer = json.loads(http.request("POST", f"/api/v1/sessions/{session_id}/messages", body))
        places |= {message["external_id"]: (session_id, message["sequence"]) for message in answer["messages"]}
    return places


def count_words() -> None:
    """Request the counts as the schedule does, and do the worker's part."""
    _run("count_words")


def let_an_hour_pass() -> None:
    """Settle quiet sessions, and give everything its vector if there is a provider."""
    do_due_jobs()
    _run(*OF_AN_HOUR)
    give_vectors()


def give_vectors() -> None:
    """Count words and give everything its vector if there is a provider, without settling."""
    from django.conf import settings
    from django.core.management import call_command

    do_due_jobs()
    count_words()
    if settings.EMBEDDING.is_on:
        call_command("embed", stdout=sys.stderr)
        do_due_jobs()


def let_the_night_pass() -> None:
    """Run retention and housekeeping."""
    _run(*OF_THE_NIGHT)


def _run(*names: str) -> None:
    """Run schedules, each with the jobs that it asks for."""
    from django.core.management import call_command

    for name in names:
        call_command("run_schedule", name, stdout=sys.stderr)
        do_due_jobs()


def do_due_jobs() -> None:
    """Do the work of the missing worker until no job is left.

    Raises:
        RuntimeError: A job failed, or the jobs take too long.
    """
    from moments_app.jobs import runner as run
    from moments_app.models import Job

    deadline = time.monotonic() + AT_MOST
    while Job.objects.open().exists():
        if time.monotonic() > deadline:
            raise RuntimeError("The jobs that are due take too long.")
        for job in Job.objects.due().order_by("run_after", "pk"):
            run.run_job(job.job_id)
        time.sleep(0 if Job.objects.due().exists() else 0.05)  # some jobs wait for others
        if failed := Job.objects.filter(status=Job.Status.FAILED).first():
            raise RuntimeError(f"{failed.process} failed: {failed.error}")
