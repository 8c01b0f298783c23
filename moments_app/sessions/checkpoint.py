"""Checkpoints: replace the live window of a session with a short context, stored in a partition event.

The next load starts with this context. For active sessions, an engine writes it (a digest). For settled sessions, it is
derived from new episodes, open tasks and problems, and the last round.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, Self

from django.conf import settings

from moments_app.engines import EngineFactory, language_model
from moments_app.engines.calls.texts import DigestRequest
from moments_app.engines.grounding import Evidence
from moments_app.engines.interface import Engine
from moments_app.engines.transcript import Turn
from moments_app.jobs.process import CorrectionState, ProcessInput, Skipped, active_prompt, correction_state
from moments_app.models import EpisodeDraft, Job, MemoryAtom, MemoryStream, Moment, PromptVersion
from moments_app.models.atom import content_hash
from moments_app.moments.partition import PartitionEvent, text_known_at
from moments_app.prompts import SESSION_DIGEST_URI
from moments_app.streams.add_atoms import add_atoms, owner_columns
from moments_app.turns.engine_input import engine_turn, split_turns
from moments_app.turns.platform_text import drop_platform_text
from sessions_app.models import Message, Session
from sessions_app.models.message import MessageQuerySet
from sessions_app.text.length import cut_lines, cut_words

MAX_WORDS = 300
MAX_MOMENTS = 8  # maximum latest moments of the live window to include
QUOTED = (40, 400)  # maximum words and characters to quote from each turn of the last round
OPEN = ("task", "problem")  # kinds of statements to list while they are open
MAX_OPEN = 5


@dataclass(frozen=True)
class DigestInput(ProcessInput):
    """The input of a checkpoint, at the time of the claim."""

    prompt_version: PromptVersion
    session: Session
    request: DigestRequest
    turns: range  # sequence numbers of the turns that the checkpoint replaces
    source_ids: list[int]  # primary keys of the turns that the engine receives
    said_at: datetime  # the time of the last turn that the engine receives
    corrections: CorrectionState  # state before the turns were read

    def with_prompt(self, version: PromptVersion) -> Self:
        return replace(self, prompt_version=version, request=replace(self.request, prompt=version.content))


@dataclass(frozen=True)
class Episode:
    day: date
    summary: str
    detail: str  # may be blank


@dataclass(frozen=True)
class DigestResult:
    context: str
    lessons: Sequence[str]
    engine: str


def digest_engine() -> EngineFactory:
    return language_model(settings.ENGINE.model)


# --- claim ---


def live_turns(session: Session) -> MessageQuerySet:
    return session.messages.turns().filter(user_id=session.user_id, sequence__gte=session.live_from_sequence)


def digest_input(session: Session, end: int) -> DigestInput | Skipped:
    """Return the input for a digest of the live turns with sequence numbers below `end`.

    The input contains the turns that are in no moment or draft, and the existing summaries of the other turns.

    Raises:
        CannotRun: the prompt has no active version.
    """
    corrections = correction_state(session.user)
    before = live_turns(session).unretracted().filter(sequence__lt=end).exclude(role=Message.Role.SYSTEM)
    if not before.exists():
        return Skipped("nothing to compact")
    drafts = list(EpisodeDraft.objects.for_session(session).filter(last_sequence__lt=end))
    unbuilt = before.filter(sequence__gt=session.built_to).order_by("sequence")
    drafted = [range(draft.first_sequence, draft.last_sequence + 1) for draft in drafts]
    shown = drop_platform_text([turn for turn in unbuilt if not any(turn.sequence in one for one in drafted)])
    event = Message.objects.boundaries_of(session).first()
    [known] = known_texts(session.user_id, [(session, event)])
    live = [draft for draft in drafts if draft.last_sequence >= session.live_from_sequence]
    known = "\n".join(text for text in [known, *(draft.summary for draft in live)] if text)
    if not shown and not known:
        return Skipped("nothing to compact")
    return make_digest_input(session, shown, end, known, active_prompt(SESSION_DIGEST_URI, session), corrections)


def known_texts(user: int, sessions: Sequence[tuple[Session, Message | None]]) -> list[str]:
    """For each session and its latest event, return a text about the turns that a digest doesn't receive."""
    live_from = {one.pk: one.live_from_sequence for one, _ in sessions if one.built_to >= one.live_from_sequence}
    said: dict[int, list[str]] = {pk: [] for pk in live_from}
    moments = Moment.objects.filter(user_id=user, source_session__in=live_from).order_by("first_sequence")
    for moment in moments if live_from else ():
        if (pk := moment.source_session_id) and moment.last_sequence >= live_from[pk]:
            said[pk].append(f"{moment.ends_at:%Y-%m-%d}: {moment.summary}")
    return [
        "\n".join(part for part in [text_known_at(event), *said.get(session.pk, [])[-MAX_MOMENTS:]] if part)
        for session, event in sessions
    ]


def open_items(user: int, sessions: Sequence[Session]) -> dict[int, list[MemoryAtom]]:
    """Return the open tasks and problems in the live turns of a person's sessions, in order, keyed by session."""
    live_from = {session.pk: session.live_from_sequence for session in sessions}
    items = MemoryAtom.objects.active().filter(
        user=user, is_candidate=False, kind__in=OPEN, source_session__in=live_from
    )
    ordered = list(items.in_order())
    sources = {pk for item in ordered for pk in item.source_message_ids}
    turns = Message.objects.filter(user_id=user, session__in=live_from, pk__in=sources)
    places = turns.values_list("session_id", "pk", "sequence")
    live = {(session, pk) for session, pk, sequence in places if sequence >= live_from[session]}
    found: dict[int, list[MemoryAtom]] = {pk: [] for pk in live_from}
    for item in ordered:
        session = item.source_session_id
        if session is not None and any((session, pk) in live for pk in item.source_message_ids):
            found[session].append(item)
    return found


def make_digest_input(
    session: Session,
    shown: Sequence[Message],
    end: int,
    known: str,
    prompt: PromptVersion,
    corrections: CorrectionState,
) -> DigestInput:
    """Return the input of a checkpoint.

    Args:
        shown: the live turns before `end` that are in no moment, as engines read them.
        known: the text about the other turns.
    """
    max_tokens = settings.MOMENT_BUILDER.max_input_tokens
    request = DigestRequest(
        turns=[engine_turn(turn, max_tokens, session.user.zone, index=turn.sequence) for turn in shown],
        context=known,
        max_words=MAX_WORDS,
        prompt=prompt.content,
    )
    return DigestInput(
        prompt_version=prompt,
        session=session,
        request=request,
        turns=range(session.live_from_sequence, end),
        source_ids=[turn.pk for turn in shown],
        said_at=shown[-1].created_at if shown else session.last_activity_at,
        corrections=corrections,
    )


# --- think ---


def digest(input: DigestInput, engine: Engine) -> DigestResult:
    """Call the engine until all turns are digested. If there are no turns, use the known text."""
    context, lessons = input.request.context, list[str]()
    turns = input.request.turns
    for part in split_turns(turns):
        answer = engine.digest(replace(input.request, turns=[turns[place] for place in part], context=context))
        context = answer.context
        lessons += [lesson.strip() for lesson in answer.lessons if lesson.strip()]
    return DigestResult(cut_lines(context, MAX_WORDS), lessons, engine.name)


def derive_digest(
    input: DigestInput, episodes: Sequence[Episode], opened: Sequence[str], lessons: Sequence[str], engine: str
) -> DigestResult:
    """Return the checkpoint of a session, from the episodes, open tasks and problems of its live turns, in order."""
    end = [f"Open: {text}" for text in opened[-MAX_OPEN:]] + _last_round(input.request.turns)
    lines: list[str] = []
    left = MAX_WORDS - sum(len(line.split()) for line in end)
    told = [[f"{one.day}: {text}" for text in (one.detail, one.summary) if text] for one in episodes]
    for forms in reversed([*([line] for line in input.request.context.split("\n") if line.strip()), *told]):
        fitting = [line for line in forms if len(line.split()) <= left]
        if not fitting:
            break
        lines.insert(0, fitting[0])
        left -= len(fitting[0].split())
    return DigestResult(cut_lines("\n".join([*lines, *end]), MAX_WORDS), lessons, engine)


def _last_round(turns: Sequence[Turn]) -> list[str]:
    """Quote the last round, which starts with the person's last turn. Omit instructions to the reader."""
    spoken = [turn for turn in turns if turn.role != "tool" and turn.content.strip()]
    start = max((place for place, turn in enumerate(spoken) if turn.role == "user"), default=len(spoken) - 1)
    words, characters = QUOTED
    evidence = Evidence(spoken)
    said = ((turn, evidence.supported(cut_words(turn.content, words)[:characters])) for turn in spoken[max(start, 0) :])
    return [f"Last said by {turn.name or turn.role}: {text}" for turn, text in said if text]


# --- commit ---


def write_digest(job: Job, session: Session, input: DigestInput, digested: DigestResult) -> dict[str, Any]:
    """Write the results of a digest, in the caller's transaction. Return the data for the job's result."""
    last = input.turns.stop - 1
    text = digested.context, digested.lessons, input.turns
    PartitionEvent.of_digest(*text, session=session, cleared=False).store_after(last)
    session.begin_live_window(last + 1)
    session.record_summary(last)
    return result_of(input, digested) | {"lessons": _store_lessons(job, input, digested)}


def result_of(input: DigestInput, digested: DigestResult) -> dict[str, Any]:
    return {
        "first_sequence": input.turns.start,
        "last_sequence": input.turns.stop - 1,
        "words": len(digested.context.split()),
        "engine": digested.engine,
    }


def _store_lessons(job: Job, input: DigestInput, digested: DigestResult) -> int:
    """Add the lessons to the streams of lessons. Return how many were new to a stream."""
    if not digested.lessons:
        return 0
    added = set()
    for stream in MemoryStream.objects.ensure_lessons(input.session):
        lessons = (cut_words(lesson, stream.observation_max_words) for lesson in digested.lessons)
        atoms = [_atom(stream, lesson, job, input, digested) for lesson in lessons]
        added |= {atom.content for atom in add_atoms(stream, atoms, requested_by=f"job:{job.job_id}")}
    return len(added)


def _atom(stream: MemoryStream, lesson: str, job: Job, input: DigestInput, digested: DigestResult) -> MemoryAtom:
    return MemoryAtom(
        stream=stream,
        **owner_columns(stream, input.session.user),
        atom_type=MemoryAtom.Type.OBSERVATION,
        content=lesson,
        content_hash=content_hash(lesson),
        formed_at=input.said_at,
        source_session=input.session,
        source_message_ids=input.source_ids,
        job=job,
        prompt_version=input.prompt_version,
        engine=digested.engine,
    )
