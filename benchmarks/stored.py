"""Puts what was said into a site, and does what the worker and the schedule would have done since."""

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.clients import Http

BATCH = 100  # turns a request
# What the schedule runs.
OF_AN_HOUR = ("count_words", "form_memories", "compact_sessions")
OF_THE_NIGHT = ("retain", "housekeeping")
AT_MOST = 1800  # seconds that the jobs of one may take

Place = tuple[str, int]  # of a turn: its session's id and its sequence


def put_in(http: Http, user_id: str, session_id: str, messages: Sequence[dict[str, Any]]) -> dict[str, Place]:
    """Appends messages to a person's session, and returns where each is, by its `external_id`."""
    places: dict[str, Place] = {}
    for start in range(0, len(messages), BATCH):
        body = {"user_id": user_id, "messages": messages[start : start + BATCH]}
        answer = json.loads(http.request("POST", f"/api/v1/sessions/{session_id}/messages", body))
        places |= {message["external_id"]: (session_id, message["sequence"]) for message in answer["messages"]}
    return places


def count_words() -> None:
    """Asks for the counts as the schedule does, and does the work of the worker that isn't there."""
    _run("count_words")


def let_an_hour_pass() -> None:
    """Settles what has gone quiet, and gives everything its vector where a provider is set."""
    from django.conf import settings
    from django.core.management import call_command

    do_due_jobs()
    _run(*OF_AN_HOUR)
    if settings.EMBEDDING.is_on:
        call_command("embed", stdout=sys.stderr)
        do_due_jobs()


def let_the_night_pass() -> None:
    """Retains, and tidies up."""
    _run(*OF_THE_NIGHT)


def _run(*names: str) -> None:
    """Run schedules, each with the jobs that it asks for."""
    from django.core.management import call_command

    for name in names:
        call_command("run_schedule", name, stdout=sys.stderr)
        do_due_jobs()


def do_due_jobs() -> None:
    """Does the work of the worker that isn't there, until nothing is left to be done.

    Raises:
        RuntimeError: a job failed, or it takes too long.
    """
    from moments_app.jobs import runner as run
    from moments_app.models import Job

    deadline = time.monotonic() + AT_MOST
    while Job.objects.open().exists():
        if time.monotonic() > deadline:
            raise RuntimeError("The jobs that are due take too long.")
        for job in Job.objects.due().order_by("run_after", "pk"):
            run.run_job(job.job_id)
        time.sleep(0 if Job.objects.due().exists() else 0.05)  # some wait for others
        if failed := Job.objects.filter(status=Job.Status.FAILED).first():
            raise RuntimeError(f"{failed.process} failed: {failed.error}")
