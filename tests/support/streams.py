"""Formations and consolidations, run in the test's process."""

from collections.abc import Callable
from threading import Thread
from typing import Any

from django.db import transaction

from moments_app.jobs.runner import run_job
from moments_app.models import Job, MemoryAtom, MemoryStream
from moments_app.models.stream import SHARD_DEFAULTS
from moments_app.streams.consolidate import Consolidate, ConsolidatedText, ConsolidationInput, Line
from moments_app.streams.edit import edit_profile, pin_text
from moments_app.streams.form import FormMemories
from moments_app.streams.texts import write_text
from sessions_app.models import Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.transcript.append import NewMessage, append
from tests.support.concurrency import on_its_own_connection, wait_until_somebody_waits


def form(session: Session) -> Job:
    """Run a forced formation immediately. Jobs that it queues stay in the queue."""
    job = run_job(Job.objects.request(FormMemories.name, session, requested_by="test", force=True).job_id)
    assert job is not None
    return job


def fold(stream: MemoryStream) -> Job:
    """Run a forced consolidation immediately."""
    asked = Job.objects.request(Consolidate.name, None, stream=stream, requested_by="test", force=True)
    job = run_job(asked.job_id)
    assert job is not None
    return job


def fold_while(stream: MemoryStream, work: Callable[[], Any]) -> None:
    """Consolidate while other work starts after the text is written, and commit when that work waits for a lock."""
    asked = Job.objects.request(Consolidate.name, None, stream=stream, requested_by="test", force=True)
    job = Job.objects.claim(asked.job_id)
    assert job is not None
    input = Consolidate().claim(job)
    assert isinstance(input, ConsolidationInput)
    old = [Line(piece.text, piece.carries) for piece in input.lines]
    new = [Line(piece.text.split("] ")[1], piece.carries) for piece in input.observations]
    other = Thread(target=on_its_own_connection, args=(work,))
    with transaction.atomic():
        Consolidate().commit(job, input, ConsolidatedText([*input.fixed, *old, *new], engine="test"))
        other.start()
        wait_until_somebody_waits()
    other.join()


def shard(name: str, agent_id: str = "", prompt: str = "Ways to repair a kiln.", **fields: Any) -> MemoryStream:
    """Create an agent's shard."""
    values = vars(SHARD_DEFAULTS) | {"application_id": DEFAULT, "extraction_prompt": prompt} | fields
    stream = MemoryStream.objects.create(stream_type="agent", agent_id=agent_id, name=name, **values)
    if stream.pinned_content:
        pin_text(stream, stream.pinned_content, actor="operator:eve")
    return stream


def note(stream: MemoryStream, content: str, atom_type: str = "observation", **fields: Any) -> MemoryAtom:
    """Write an item directly."""
    return stream.atoms.create(user_id=stream.user_id, atom_type=atom_type, content=content, **fields)


def rewrite(stream: MemoryStream, text: str) -> None:
    """Set the text of a stream as an operator."""
    write_text(stream, text, actor="operator:eve")


def written(user: UserProfile, **edits: Any) -> None:
    """Set fields of a profile as an operator."""
    with transaction.atomic():
        edit_profile(UserProfile.objects.locked().get(pk=user.pk), edits, actor="operator:eve")
    user.refresh_from_db()


def candidate(user: UserProfile, stream: MemoryStream, content: str) -> MemoryAtom:
    """Return the item that a shard learned from one sentence of a person."""
    session = append(user, "s1", [NewMessage("user", f"Listen. {content}")]).session
    turns = list(session.messages.turns().order_by("-sequence").values_list("pk", flat=True)[:1])
    sources = {"source_session": session, "source_user": user, "source_message_ids": turns}
    return stream.atoms.create(user=user, is_candidate=True, atom_type="observation", content=content, **sources)
