"""`form_memories`: the turns since the last formation become atoms in the streams that the session feeds.

One engine call for all streams, whatever their number. What it answers is taken item by item: a bad one is counted and
named in the job's result, and costs no good one. An atom that a stream has already is not added again: the database
says so.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from pydantic import ValidationError

from moments_app.engines import Caller, language_model
from moments_app.engines.calls.formation import DraftAtom, FormationRequest, Limits, StreamSection
from moments_app.engines.interface import Engine
from moments_app.jobs.process import Moved, Skipped, complete, locked_session, prompt_in_force
from moments_app.models import Job, MemoryAtom, MemoryStream, PromptVersion
from moments_app.models.atom import content_hash
from moments_app.prompts import MEMORY_EXTRACTION_URI
from moments_app.streams.add_atoms import add_atoms
from moments_app.turns.engine_input import engine_turn
from moments_app.turns.platform_text import drop_platform_text
from sessions_app.models import Message, Session

NAME = "form_memories"
MAX_TURNS = 200  # of one run; what lies beyond is formed by a follow-up
CURRENT_ITEMS = 20  # of a stream's latest, shown to the engine so that they are not said again
CURRENT_CHARS = 6_000
AGAIN = "again"  # in a job's params: stretches of turns, [first, last], whose memories were withdrawn


@dataclass(frozen=True)
class Work:
    """The input of a formation.

    Args:
        session: with its counters at the claim.
        streams: by the label the engine knows them by.
        messages: shown to the engine, by sequence.
        last_sequence: up to which turns are formed by this.
        is_cut: more is waiting than one run takes.
        again: stretches of turns whose memories were withdrawn and are formed anew, first the one of this run; blank:
            this run is about turns that no formation has seen.
    """

    session: Session
    prompt_version: PromptVersion
    streams: dict[str, MemoryStream]
    request: FormationRequest
    messages: dict[int, Message]
    last_sequence: int
    is_cut: bool
    again: list[list[int]]

    def with_prompt(self, version: PromptVersion) -> "Work":
        """The same input with other instructions."""
        return replace(self, prompt_version=version, request=replace(self.request, prompt=version.content))


@dataclass(frozen=True)
class Candidate:
    """An item that may become an atom."""

    stream: MemoryStream
    atom_type: str
    text: str
    sequences: list[int]


@dataclass(frozen=True)
class Formed:
    """What the engine made of it: good items, and how many were bad, by reason."""

    candidates: list[Candidate]
    dropped: Counter[str]
    engine: str


def caller(job: Job) -> Caller:
    """Who writes for this process."""
    return language_model(settings.MEMORY_FORMATION.model)


def is_due(session: Session) -> bool:
    """Whether a formation would start by itself: enough turns or weighted tokens since the last one."""
    conf = settings.MEMORY_FORMATION
    turns = session.message_count - session.formed_message_count
    if not conf.enabled or turns < conf.min_messages:
        return False
    return (
        turns >= conf.message_interval
        or session.weighted_tokens - session.formed_weighted_tokens >= conf.token_interval
    )


# --- claim ---


def claim(job: Job) -> Work | Skipped:
    """Reads the turns that no formation has seen and the streams they may go into.

    Raises:
        CannotRun: when the prompt resource has no active version.
    """
    session = job.session
    assert session is not None  # a formation is about a session, always
    if not job.force and not is_due(session):
        return Skipped("not due: neither interval is reached")
    again, waiting = _again(session, job.params.get(AGAIN, []))
    waiting = waiting or list(_unformed(session)[: MAX_TURNS + 1])
    turns = waiting[:MAX_TURNS]
    shown = drop_platform_text(turns)
    if not shown:
        _count_from(session, turns[-1].sequence if turns else session.last_sequence)
        return Skipped("no turns to form memories from")
    MemoryStream.objects.ensure_for(session)
    streams = {stream.label: stream for stream in MemoryStream.objects.seen_by(session).extracting().order_by("id")}
    if not streams:
        _count_from(session, turns[-1].sequence)
        return Skipped("no stream is active")
    share = max(settings.MOMENT_BUILDER.max_input_tokens // len(shown), 50)
    prompt_version = prompt_in_force(MEMORY_EXTRACTION_URI)
    return Work(
        session=session,
        prompt_version=prompt_version,
        streams=streams,
        request=FormationRequest(
            turns=[engine_turn(turn, share, index=turn.sequence) for turn in shown],
            sections=[_section(stream, len(shown)) for stream in streams.values()],
            prompt=prompt_version.content,
        ),
        messages={turn.sequence: turn for turn in shown},
        last_sequence=turns[-1].sequence,
        is_cut=len(waiting) > MAX_TURNS,
        again=again,
    )


def _unformed(session: Session) -> QuerySet[Message]:
    return _formable(session).filter(sequence__gt=session.formed_to)


def _formable(session: Session) -> QuerySet[Message]:
    turns = session.messages.turns().believed().filter(user_id=session.user_id)
    return turns.exclude(role=Message.Role.SYSTEM).order_by("sequence")


def _again(session: Session, stretches: list[list[int]]) -> tuple[list[list[int]], list[Message]]:
    """The stretches to be formed anew, from the first on that has turns to form, and its turns."""
    for position, stretch in enumerate(stretches):
        turns = list(_formable(session).filter(sequence__range=stretch)[: MAX_TURNS + 1])
        if drop_platform_text(turns[:MAX_TURNS]):
            return stretches[position:], turns
    return [], []


def _section(stream: MemoryStream, turns: int) -> StreamSection:
    observations = _limits(turns, stream.observation_min, stream.observation_max, stream.observation_max_words)
    facts = _limits(turns, stream.fact_min, stream.fact_max, stream.fact_max_words)
    return StreamSection(
        label=stream.label,
        prompt=stream.extraction_prompt,
        observations=observations if stream.extracts_observations else None,
        facts=facts if stream.extracts_facts else None,
        current=_current(stream),
    )


def _limits(turns: int, least: int, most: int, words: int) -> Limits:
    """Scaled with the length of the conversation: the most at an interval's worth of turns."""
    share = min(1.0, turns / settings.MEMORY_FORMATION.message_interval)
    return Limits(least, max(least, 1, round(least + (most - least) * share)) if most else 0, words)


def _current(stream: MemoryStream) -> str:
    latest = stream.atoms.active().order_by("-formed_at", "-id").values_list("content", flat=True)[:CURRENT_ITEMS]
    return "\n".join([stream.consolidated_content, *latest]).strip()[:CURRENT_CHARS]


# --- think ---


def think(work: Work, engine: Engine, progress: Callable[[int, int], None]) -> Formed:
    """Calls the engine, once, and sorts its items.

    Raises:
        EngineError: when it gave no valid answer.
    """
    progress(0, 1)
    answer = engine.form_memories(work.request)
    dropped: Counter[str] = Counter()
    candidates = [candidate for entry in answer.streams for candidate in _candidates(entry, work, dropped)]
    return Formed(candidates, dropped, engine.name)


def _candidates(entry: Any, work: Work, dropped: Counter[str]) -> list[Candidate]:
    """The good items of one stream's entry."""
    stream = work.streams.get(str(entry.get("stream"))) if isinstance(entry, dict) else None
    if stream is None:
        dropped["unknown stream"] += 1
        return []
    kinds = {
        MemoryAtom.Type.OBSERVATION: (stream.extracts_observations, stream.observation_max_words, "observations"),
        MemoryAtom.Type.FACT: (stream.extracts_facts, stream.fact_max_words, "facts"),
    }
    found = []
    for atom_type, (is_wanted, words, name) in kinds.items():
        items = entry.get(name)
        if not isinstance(items, list):
            dropped[f"{name} are no list"] += items is not None
            continue
        for item in items if is_wanted else ():
            if candidate := _candidate(item, stream, atom_type, words, work, dropped):
                found.append(candidate)
    return found


def _candidate(
    item: Any, stream: MemoryStream, atom_type: str, words: int, work: Work, dropped: Counter[str]
) -> Candidate | None:
    try:
        draft = DraftAtom.model_validate(item)
    except ValidationError:
        dropped["wrong shape"] += 1
        return None
    text = cut_words(draft.text, words)
    sequences = sorted({index for index in draft.message_indexes if index in work.messages})
    if not text or "\0" in text:
        dropped["empty"] += 1
    elif not sequences:
        dropped["no source turn"] += 1
    else:
        return Candidate(stream, atom_type, text, sequences)
    return None


def cut_words(text: str, most: int) -> str:
    """At most so many words, cut at a sentence where there is one, else at a word."""
    text = " ".join(text.split())
    parts = text.split(" ")
    if len(parts) <= most:
        return text
    kept = " ".join(parts[:most])
    end = max(kept.rfind(mark) for mark in (". ", "! ", "? ", "。"))
    return kept[: end + 1] if end > 0 else kept


# --- commit ---


def commit(job: Job, work: Work, formed: Formed) -> None:
    """Adds the atoms, evicts what is over a buffer, and completes the job.

    Raises:
        ClaimLost: the job was taken over, or the session is gone.
        Moved: another formation has taken these turns.
    """
    session = locked_session(job)
    if session.last_formation_sequence != work.session.last_formation_sequence:
        raise Moved("These turns were formed meanwhile.")
    dropped = Counter(formed.dropped)
    added = 0
    for stream in work.streams.values():
        atoms = [_atom(item, job, work, formed) for item in formed.candidates if item.stream == stream]
        new = len(add_atoms(stream, atoms, requested_by=f"job:{job.job_id}"))
        dropped["known already"] += len(atoms) - new
        added += new
    if not work.again:
        _count_from(session, work.last_sequence)
    result = {
        "atoms": added,
        "streams": len(work.streams),
        "dropped": dict(+dropped),
        "first_sequence": work.request.turns[0].index,
        "last_sequence": work.last_sequence,
        "again": bool(work.again),
        "engine": formed.engine,
    }
    complete(job, "memories_formed", result)
    _follow_up(job, session, work)


def _follow_up(job: Job, session: Session, work: Work) -> None:
    """Asks for the next formation when this one took only a part, or when enough came in meanwhile."""
    rest = work.again[1:]
    if work.again and work.is_cut:
        rest = [[work.last_sequence + 1, work.again[0][1]], *rest]
    if rest or work.is_cut or is_due(session):
        params = {AGAIN: rest} if rest else {}
        Job.objects.request(
            NAME, session, requested_by=f"job:{job.job_id}", force=bool(rest) or work.is_cut, params=params
        )


def _atom(candidate: Candidate, job: Job, work: Work, formed: Formed) -> MemoryAtom:
    sources = [work.messages[sequence] for sequence in candidate.sequences]
    return MemoryAtom(
        stream=candidate.stream,
        user_id=candidate.stream.user_id,
        atom_type=candidate.atom_type,
        content=candidate.text,
        content_hash=content_hash(candidate.text),
        formed_at=_said_at(sources),
        source_session=work.session,
        source_message_ids=[message.pk for message in sources],
        source_user_id=None if candidate.stream.user_id else work.session.user_id,
        job=job,
        prompt_version=work.prompt_version,
        engine=formed.engine,
    )


def _said_at(sources: Sequence[Message]) -> datetime:
    """The time of the last of the turns it comes from."""
    return max(sources, key=lambda message: message.sequence).created_at


def _count_from(session: Session, last_sequence: int) -> None:
    """From now on intervals count what came after this turn."""
    later = session.messages.turns().filter(user_id=session.user_id, sequence__gt=last_sequence)
    after = list(later.values_list("role", "tokens"))
    weighted = sum(settings.MEMORY_FORMATION.weighted(role, tokens) for role, tokens in after)
    session.last_formation_sequence = last_sequence
    session.formed_message_count = session.message_count - len(after)
    session.formed_weighted_tokens = session.weighted_tokens - weighted
    session.save(update_fields=["last_formation_sequence", "formed_message_count", "formed_weighted_tokens"])


# --- when it came to nothing ---


def failed(job: Job, error: str) -> None:
    """Nothing is to be undone: a formation writes nothing before its commit."""


# --- sessions gone cold ---

SWEEP = 500  # sessions a run


def sweep(*, dry_run: bool = False) -> int:
    """Asks for the formation of sessions that have been idle for a while with turns waiting.

    Args:
        dry_run: only count.

    Returns:
        How many were asked for.
    """
    cold = list(Session.objects.cold()[:SWEEP]) if settings.MEMORY_FORMATION.enabled else []
    for session in () if dry_run else cold:
        Job.objects.request(NAME, session, requested_by="form_memories", force=True)
    return len(cold)
