"""`digest_session`: the live window of a session becomes a short context, and what is to be learned from it.

The context is left as a partition event, so the next load begins with it; lessons go into the streams of lessons that
every later context begins with. Turns that came in meanwhile stay live.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.conf import settings

from moments_app.engines import Caller, language_model
from moments_app.engines.calls.digest import DigestRequest
from moments_app.engines.interface import Engine
from moments_app.jobs.process import Moved, Skipped, complete, locked_session, prompt_in_force
from moments_app.models import Job, MemoryAtom, MemoryStream, PromptVersion
from moments_app.models.atom import content_hash
from moments_app.moments.partition import PartitionEvent, known_at
from moments_app.prompts import SESSION_DIGEST_URI
from moments_app.streams.add_atoms import add_atoms
from moments_app.streams.form import cut_words
from moments_app.turns.engine_input import engine_turn
from moments_app.turns.platform_text import drop_platform_text
from moments_app.turns.tool_pairs import pair_safe_boundary
from sessions_app.models import Message, Session

NAME = "digest_session"
MAX_WORDS = 300
SHOWN_TURNS = 20  # the latest of the window, that the engine is shown
LOOK_BACK = 200  # turns in which a call is looked for whose result would otherwise stay alone


@dataclass(frozen=True)
class Work:
    """The input of a digest.

    Args:
        session: as it was at the claim.
        turns: sequences of those that the digest stands for.
        source_ids: of the messages that are shown.
        said_at: when the last of them was said.
    """

    session: Session
    prompt_version: PromptVersion
    request: DigestRequest
    turns: range
    source_ids: list[int]
    said_at: datetime

    def with_prompt(self, version: PromptVersion) -> "Work":
        """The same input with other instructions."""
        return replace(self, prompt_version=version, request=replace(self.request, prompt=version.content))


@dataclass(frozen=True)
class Digested:
    """What the engine made of it."""

    context: str
    lessons: Sequence[str]
    engine: str


def caller(job: Job) -> Caller:
    """Who writes for this process."""
    return language_model(settings.SESSION_COMPACTION.model)


# --- claim ---


def claim(job: Job) -> Work | Skipped:
    """Reads the live window but for its newest turns; how many stay is the job's parameter `keep`, 0 by default.

    Raises:
        CannotRun: when the prompt resource has no active version.
    """
    session = job.session
    assert session is not None  # a digest is about a session, always
    keep = int(job.params.get("keep", 0))
    if not job.force and session.live_count < keep + settings.SESSION_COMPACTION.min_messages:
        return Skipped("not due: too few turns are live")
    return read(session, _boundary(session, keep))


def _boundary(session: Session, keep: int) -> int:
    """Sequence of the first turn that stays live: no call is left without its result."""
    newest = _live(session).order_by("-sequence")[: keep + LOOK_BACK]
    turns = list(newest)[::-1]
    boundary = pair_safe_boundary(turns, max(len(turns) - keep, 0))
    return turns[boundary].sequence if boundary < len(turns) else session.last_sequence + 1


def read(session: Session, end: int) -> Work | Skipped:
    """What a digest of the live turns before the sequence `end` is made of.

    Raises:
        CannotRun: when the prompt resource has no active version.
    """
    latest = _live(session).believed().filter(sequence__lt=end).exclude(role=Message.Role.SYSTEM).order_by("-sequence")
    shown = drop_platform_text(list(latest[:SHOWN_TURNS])[::-1])
    if not shown:
        return Skipped("nothing to digest")
    prompt_version = prompt_in_force(SESSION_DIGEST_URI)
    share = max(settings.MOMENT_BUILDER.max_input_tokens // len(shown), 50)
    request = DigestRequest(
        turns=[engine_turn(turn, share, index=turn.sequence) for turn in shown],
        context=known_at(Message.objects.boundaries_of(session).first()),
        max_words=MAX_WORDS,
        prompt=prompt_version.content,
    )
    return Work(
        session=session,
        prompt_version=prompt_version,
        request=request,
        turns=range(session.live_from_sequence, end),
        source_ids=[turn.pk for turn in shown],
        said_at=shown[-1].created_at,
    )


def _live(session: Session) -> Any:
    return session.messages.turns().filter(user_id=session.user_id, sequence__gte=session.live_from_sequence)


# --- think ---


def think(work: Work, engine: Engine, progress: Callable[[int, int], None]) -> Digested:
    """Calls the engine, once.

    Raises:
        EngineError: when it gave no valid answer.
    """
    progress(0, 1)
    answer = engine.digest(work.request)
    lessons = [lesson.strip() for lesson in answer.lessons if lesson.strip()]
    return Digested(cut_lines(answer.context, MAX_WORDS), lessons, engine.name)


# --- commit ---


def commit(job: Job, work: Work, made: Digested) -> None:
    """Leaves the partition event and the lessons, and completes the job.

    Raises:
        ClaimLost: the job was taken over, or the session is gone.
        Moved: another boundary was left meanwhile.
    """
    session = locked_session(job)
    if session.live_from_sequence != work.session.live_from_sequence:
        raise Moved("The live window changed while the engine was thinking.")
    complete(job, "session_digested", leave(job, session, work, made))


def leave(job: Job, session: Session, work: Work, made: Digested, *, cleared: bool = False) -> dict[str, Any]:
    """Writes what a digest leaves behind, in the caller's transaction.

    Returns:
        What the job's result says of it.
    """
    last = work.turns.stop - 1
    PartitionEvent.of_digest(made.context, made.lessons, work.turns, session=session, cleared=cleared).leave(last)
    session.begin_live_window(last + 1)
    session.note_summarised(last)
    return {
        "first_sequence": work.turns.start,
        "last_sequence": last,
        "words": len(made.context.split()),
        "lessons": _learn(job, session, work, made),
        "engine": made.engine,
    }


def cut_lines(text: str, most: int) -> str:
    """At most so many words, cut at a line or sentence; line breaks stay."""
    kept: list[str] = []
    left = most
    for line in text.split("\n"):
        words = line.split()
        if len(words) > left:
            short = " ".join(words[:left])
            end = max(short.rfind(mark) for mark in (". ", "! ", "? "))
            if end > 0 or not kept:
                kept.append(short[: end + 1] if end > 0 else short)
            break
        kept.append(line)
        left -= len(words)
    return "\n".join(kept).strip()


def _learn(job: Job, session: Session, work: Work, made: Digested) -> int:
    """Adds the lessons to the streams that take them; returns how many were new to any."""
    if not made.lessons:
        return 0
    added = set()
    for stream in MemoryStream.objects.ensure_lessons(session.agent_id, settings.SESSION_COMPACTION.lessons_scope):
        lessons = (cut_words(lesson, stream.observation_max_words) for lesson in made.lessons)
        atoms = [_atom(stream, lesson, job, work, made) for lesson in lessons]
        added |= {atom.content for atom in add_atoms(stream, atoms, requested_by=f"job:{job.job_id}")}
    return len(added)


def _atom(stream: MemoryStream, lesson: str, job: Job, work: Work, made: Digested) -> MemoryAtom:
    return MemoryAtom(
        stream=stream,
        atom_type=MemoryAtom.Type.OBSERVATION,
        content=lesson,
        content_hash=content_hash(lesson),
        formed_at=work.said_at,
        source_session=work.session,
        source_user_id=work.session.user_id,
        source_message_ids=work.source_ids,
        job=job,
        prompt_version=work.prompt_version,
        engine=made.engine,
    )


# --- when it came to nothing ---


def failed(job: Job, error: str) -> None:
    """Nothing is to be undone: a digest writes nothing before its commit."""
