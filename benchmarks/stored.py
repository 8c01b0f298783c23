"""Puts what was said into a site, and does what a worker would have done since."""

import json
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.clients import Http

BATCH = 100  # turns a request

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
    from django.core.management import call_command

    from moments_app.models import Job
    from moments_app.processes import count_words, run

    call_command("count_words", stdout=sys.stderr)
    for job in Job.objects.filter(process=count_words.NAME):
        run.run_job(job.job_id)
        job.refresh_from_db()
        if job.status != Job.Status.COMPLETED:
            raise RuntimeError(f"The words were not counted: {job.error}")
