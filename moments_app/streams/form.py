"""`form_memories`: the turns since the last formation become atoms in the streams that the session feeds.

One engine call for all streams, whatever their number, and one more for each model that some of them name themselves.
What it answers is taken item by item: a bad one is counted and
named in the job's result, and costs no good one. An atom that a stream has already is not added again: the database
says so.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Self

from django.conf import settings
from django.db.models import F, FloatField, QuerySet, Sum, Value
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast, Ceil, Floor, Greatest, Least
from pydantic import ValidationError

from moments_app.engines import Caller, engine_name, language_model
from moments_app.engines.calls.formation import DraftAtom, FormationRequest, Limits, StreamSection
from moments_app.engines.interface import Engine
from moments_app.engines.together import Part
from moments_app.jobs.process import (
    Asked,
    Moved,
    Process,
    ProcessInput,
    Progress,
    Skipped,
    Timing,
    complete,
    locked_session,
    prompt_in_force,
    session_of,
)
from moments_app.jobs.workload import Workload, settling_combines, tokens_of, turns_that
from moments_app.models import Circuit, Job, MemoryAtom, MemoryStream, PromptResource, PromptVersion
from moments_app.models.atom import content_hash
from moments_app.models.job import JobQuerySet
from moments_app.prompts import MEMORY_EXTRACTION_URI
from moments_app.streams.add_atoms import add_to_each, belonging_to
from moments_app.streams.timeline import end_by
from moments_app.streams.word_limit import cut_words
from moments_app.turns.engine_input import engine_turn
from moments_app.turns.platform_text import drop_platform_text
from sessions_app.models import Message, Session

MAX_TURNS = 200  # of one run; what lies beyond is formed by a follow-up
CURRENT_ITEMS = 20  # of a stream's latest, shown to the engine so that they are not said again
CURRENT_FACTS = 40  # of the person's, by number, so that the engine says which of them are over
CURRENT_CHARS = 6_000
SWEEP = 500  # sessions a run
PROMPT_TOKENS = 1_450  # of a call beside the turns: prompt, streams, what they have already
UNFORMED = F("message_count") - F("formed_message_count")
FORMED = "memories_formed"  # in the event log
RANGES_AGAIN = "again"  # in a job's params: ranges of turns, [first, last], whose memories were withdrawn


@dataclass(frozen=True)
class FormationInput(ProcessInput):
    """The input of a formation.

    Args:
        session: with its counters at the claim.
        streams: by the label that the engine knows them by.
        request: what the engine gets.
        messages: shown to the engine, by sequence.
        last_sequence: up to which turns are formed by this.
        facts: the person's that the engine was shown, by number.
        is_cut: more is waiting than one run takes.
        again: ranges of turns whose memories were withdrawn and are formed again, first the one of this run; blank:
            this run is about turns that no formation has seen.
    """

    prompt_version: PromptVersion
    session: Session
    streams: dict[str, MemoryStream]
    request: FormationRequest
    messages: dict[int, Message]
    last_sequence: int
    facts: dict[int, int]
    is_cut: bool = False
    again: list[list[int]] = field(default_factory=list)

    def with_prompt(self, version: PromptVersion) -> Self:
        """Return the same input with other instructions."""
        return replace(self, prompt_version=version, request=replace(self.request, prompt=version.content))


@dataclass(frozen=True)
class Candidate:
    """An item that may become an atom of the stream with a label."""

    label: str
    stream: MemoryStream
    atom_type: str
    sequences: list[int]
    draft: DraftAtom
    engine: str = ""

    @property
    def valid_from(self) -> datetime | None:
        """The time since when it holds, where one was given that is a time."""
        with suppress(ValueError):
            is_month = len(self.draft.valid_from) == len("2026-03")
            given = datetime.fromisoformat(f"{self.draft.valid_from}-01" if is_month else self.draft.valid_from)
            return given if given.tzinfo else given.replace(tzinfo=UTC)
        return None


@dataclass(frozen=True)
class Formed:
    """The good items of the engine's answer, and how many were bad, by reason."""

    candidates: list[Candidate]
    dropped: Counter[str]
    engine: str


@dataclass(frozen=True)
class Known:
    """What streams have already, so that it is not said again.

    Args:
        facts: the person's that hold, by the numbers by which an item says which of them it ends.
        current: the text and the items of a stream, by its label.
    """

    facts: Mapping[int, MemoryAtom] = field(default_factory=dict)
    current: Mapping[str, str] = field(default_factory=dict)


class FormMemories(Process[FormationInput, Formed]):
    """Forms what waits in a session into the streams that it feeds."""

    name = "form_memories"
    prompt_purpose = PromptResource.Purpose.MEMORY_EXTRACTION
    sweep_timing = Timing(minutes=10)

    def caller(self, job: Job) -> Caller:
        """Return the model for all streams; or that of a stream which is left alone now, for then the job waits."""
        return _closed_one(job) or language_model(settings.MEMORY_FORMATION.model)

    def alike(self, job: Job) -> JobQuerySet:
        """Return all formations; where a stream's own model is left alone, the job itself: others may not need it."""
        return Job.objects.filter(pk=job.pk) if _closed_one(job) else super().alike(job)

    def claim(self, job: Job) -> FormationInput | Skipped:
        """Read the turns that no formation has seen and the streams that they may go into."""
        session = session_of(job)
        if not job.force and not is_due(session):
            return Skipped("not due: neither interval is reached")
        again, waiting = _again(session, job.params.get(RANGES_AGAIN, []))
        waiting = waiting or list(_unformed(session)[: MAX_TURNS + 1])
        turns = waiting[:MAX_TURNS]
        shown = drop_platform_text(turns)
        if not shown:
            _count_from(session, turns[-1].sequence if turns else session.last_sequence)
            return Skipped("no turns to form memories from")
        MemoryStream.objects.ensure_for(session)
        streams = labelled(MemoryStream.objects.seen_by(session).extracting().order_by("id"))
        if not streams:
            _count_from(session, turns[-1].sequence)
            return Skipped("no stream is active")
        facts = _facts(streams.values())
        input = formation_input(
            session, turns, shown, streams, formation_prompt(session), _known(session, streams, facts)
        )
        return replace(input, is_cut=len(waiting) > MAX_TURNS, again=again)

    def part(self, input: FormationInput) -> Part | None:
        """Return the call about the streams that name no model of their own."""
        sections = _by_model(input).get("")
        if input.is_cut or not sections:
            return None
        return Part(replace(input.request, sections=sections), [turn.index for turn in input.request.turns])

    def think(self, input: FormationInput, engine: Engine, progress: Progress) -> Formed:
        """Call the engine, once for each model that streams are to be formed by, and sort its items."""
        dropped: Counter[str] = Counter()
        candidates: list[Candidate] = []
        groups = _by_model(input)
        asked: list[str] = []
        for number, (model, sections) in enumerate(groups.items()):
            progress(number, len(groups))
            formed_by = engine.with_model(model) if model else engine
            answer = formed_by.form_memories(replace(input.request, sections=sections))
            labels = {section.label for section in sections}
            found = [one for entry in answer.streams for one in _candidates(entry, labels, input, dropped)]
            candidates += [replace(one, engine=formed_by.name) for one in found]
            asked.append(formed_by.name)
        return Formed(candidates, dropped, ", ".join(asked))

    def commit(self, job: Job, input: FormationInput, answer: Formed) -> None:
        """Add the atoms, evict what is over a buffer, and complete the job.

        Raises:
            ClaimLost: the job was taken over, or the session is gone.
            Moved: another formation has taken these turns.
        """
        session = locked_session(job)
        if session.formed_to != input.session.formed_to:
            raise Moved("These turns were formed meanwhile.")
        atoms = atoms_of(job, input, answer)
        add_to_each(by_stream(input, answer, atoms), requested_by=f"job:{job.job_id}")
        ended = sum(_end(atom, item, input) for atom, item in zip(atoms, answer.candidates, strict=True))
        if not input.again:
            _count_from(session, input.last_sequence)
        complete(job, FORMED, result_of(input, answer, atoms, ended=ended))
        _follow_up(job, session, input)

    def after_append(self, session: Session, messages: Sequence[Message]) -> Job | None:
        """Ask for a formation when an interval is reached."""
        return Job.objects.request(self.name, session, requested_by="append") if is_due(session) else None

    def rewind(self, job: Job) -> bool:
        done = Job.objects.filter(session=job.session, process=self.name, status=Job.Status.COMPLETED)
        if (last := done.order_by("-id").first()) is None:
            return False
        # What came of it would be shown to the engine as known already.
        MemoryAtom.objects.filter(job=last).update(state=MemoryAtom.State.EVICTED)
        job.params = {RANGES_AGAIN: [[last.result["first_sequence"], last.result["last_sequence"]]]}
        return True

    def workload(self, *, everything: bool) -> Workload:
        unformed = Cast(turns_that(UNFORMED, everything=everything), FloatField())
        calls: Combinable = Ceil(unformed / MAX_TURNS)
        shown: Combinable = unformed
        if settling_combines():  # but for what was formed before a session went quiet
            conf = settings.MEMORY_FORMATION
            by_tokens = F("weighted_tokens") / float(conf.token_interval)
            calls = Floor(Greatest(unformed / float(conf.message_interval), by_tokens)) if everything else Value(0.0)
            shown = Least(calls * float(conf.message_interval), unformed)
        engine = engine_name(settings.MEMORY_FORMATION.model)
        return Workload(engine, Sum(calls), Sum(tokens_of(shown)), usual_answer=500, prompt_tokens=PROMPT_TOKENS)

    def sweep(self, *, dry_run: bool = False) -> Asked:
        """Ask for the formation of sessions that have gone cold with turns waiting, but those that settling forms."""
        cold = list(_cold()[:SWEEP]) if settings.MEMORY_FORMATION.enabled else []
        for session in () if dry_run else cold:
            Job.objects.request(self.name, session, requested_by=self.name, force=True)
        return Asked(len(cold))


def atoms_of(job: Job, input: FormationInput, formed: Formed) -> list[MemoryAtom]:
    """Return an atom for each of the good items, to be added."""
    return [_atom(item, item.stream, job, input) for item in formed.candidates]


def by_stream(
    input: FormationInput, formed: Formed, atoms: Sequence[MemoryAtom]
) -> list[tuple[MemoryStream, list[MemoryAtom]]]:
    """Return the atoms of a formation with the stream that takes them."""
    both = list(zip(formed.candidates, atoms, strict=True))
    return [(stream, [atom for item, atom in both if item.label == label]) for label, stream in input.streams.items()]


def result_of(input: FormationInput, formed: Formed, atoms: Sequence[MemoryAtom], *, ended: int) -> dict[str, Any]:
    """Return what a formation's job says of it, once its atoms are added."""
    added = sum(not atom._state.adding for atom in atoms)
    dropped = formed.dropped + Counter({"known already": len(atoms) - added})
    return {
        "atoms": added,
        "ended": ended,
        "streams": len(input.streams),
        "dropped": dict(dropped),
        "first_sequence": input.request.turns[0].index,
        "last_sequence": input.last_sequence,
        "again": bool(input.again),
        "engine": formed.engine,
    }


def is_due(session: Session) -> bool:
    """Tell whether a formation would start by itself: enough turns or weighted tokens since the last one."""
    conf = settings.MEMORY_FORMATION
    turns = session.message_count - session.formed_message_count
    if not conf.enabled or turns < conf.min_messages:
        return False
    return (
        turns >= conf.message_interval
        or session.weighted_tokens - session.formed_weighted_tokens >= conf.token_interval
    )


def _cold() -> QuerySet[Session]:
    """Return sessions that have gone cold; where one call does for all of a settling, not those it comes to soon."""
    cold = Session.objects.cold()
    if not (settings.ENGINE.uses_model and settings.ENGINE.combines_calls):
        return cold
    return cold.exclude(pk__in=Session.objects.settled_soon().values("pk"))


# --- claim ---


def _unformed(session: Session) -> QuerySet[Message]:
    return _formable(session).filter(sequence__gt=session.formed_to)


def _formable(session: Session) -> QuerySet[Message]:
    turns = session.messages.turns().believed().filter(user_id=session.user_id)
    return turns.exclude(role=Message.Role.SYSTEM).order_by("sequence")


def _again(session: Session, ranges: list[list[int]]) -> tuple[list[list[int]], list[Message]]:
    """Return the ranges to be formed again, from the first on that has turns to form, and the turns of that one."""
    for position, ends in enumerate(ranges):
        turns = list(_formable(session).filter(sequence__range=ends)[: MAX_TURNS + 1])
        if drop_platform_text(turns[:MAX_TURNS]):
            return ranges[position:], turns
    return [], []


def formation_prompt(session: Session) -> PromptVersion:
    """Return the instructions that formations of a session follow now.

    Raises:
        CannotRun: when the prompt resource has no active version.
    """
    return prompt_in_force(MEMORY_EXTRACTION_URI, session)


def formation_input(
    session: Session,
    turns: Sequence[Message],
    shown: Sequence[Message],
    streams: dict[str, MemoryStream],
    prompt: PromptVersion,
    known: Known,
) -> FormationInput:
    """Return the input of a formation.

    Args:
        session: of the turns.
        turns: that are formed by it.
        shown: those of them that have something to show, as engines read them.
        streams: that the session feeds, by label.
        prompt: in force.
        known: what the streams have.
    """
    return FormationInput(
        prompt_version=prompt,
        session=session,
        streams=streams,
        request=_request(shown, streams, known, prompt),
        messages={turn.sequence: turn for turn in shown},
        last_sequence=turns[-1].sequence,
        facts={number: fact.pk for number, fact in known.facts.items()},
    )


def labelled(streams: Iterable[MemoryStream]) -> dict[str, MemoryStream]:
    """Return streams by label: a shard of one agent beside one of every agent by the same name has its agent's, too."""
    labelled: dict[str, MemoryStream] = {}
    for stream in streams:
        label = (
            stream.label if stream.label not in labelled else f"{stream.label} of {stream.agent_id or 'every agent'}"
        )
        labelled[label] = stream
    return labelled


def _facts(streams: Iterable[MemoryStream]) -> dict[int, MemoryAtom]:
    """Return what holds in the person's own streams, numbered: what lasts and what is new first."""
    own = [stream.pk for stream in streams if not stream.is_shard]
    facts = MemoryAtom.objects.active().facts().filter(stream__in=own, is_candidate=False)
    return dict(enumerate(facts.order_by("-worth", "-formed_at", "-id")[:CURRENT_FACTS], start=1))


def _known(session: Session, streams: Mapping[str, MemoryStream], facts: dict[int, MemoryAtom]) -> Known:
    return Known(facts, {label: _current(session, stream, facts.values()) for label, stream in streams.items()})


def _request(
    shown: Sequence[Message], streams: Mapping[str, MemoryStream], known: Known, prompt: PromptVersion
) -> FormationRequest:
    share = max(settings.MOMENT_BUILDER.max_input_tokens // len(shown), 50)
    return FormationRequest(
        turns=[engine_turn(turn, share, index=turn.sequence) for turn in shown],
        sections=[_section(label, stream, len(shown), known) for label, stream in streams.items()],
        prompt=prompt.content,
    )


def _section(label: str, stream: MemoryStream, turns: int, known: Known) -> StreamSection:
    observations = _limits(turns, stream.observation_min, stream.observation_max, stream.observation_max_words)
    most = _most_facts(stream)
    facts = _limits(turns, min(stream.fact_min, most), most, stream.fact_max_words)
    return StreamSection(
        label=label,
        prompt=stream.extraction_prompt,
        observations=observations if stream.extracts_observations else None,
        facts=facts if stream.extracts_facts else None,
        current=known.current.get(label, ""),
        facts_now={number: _dated(fact) for number, fact in known.facts.items() if fact.stream_id == stream.pk},
    )


def _most_facts(stream: MemoryStream) -> int:
    """Return the most facts of one formation: what goes beyond the stream's buffer would be evicted at once."""
    return min(stream.fact_max, stream.fact_buffer_max)


def _limits(turns: int, least: int, most: int, words: int) -> Limits:
    """Return the limits, scaled with the length of the conversation: the most at an interval's worth of turns."""
    share = min(1.0, turns / settings.MEMORY_FORMATION.message_interval)
    return Limits(least, max(least, 1, round(least + (most - least) * share)) if most else 0, words)


def _dated(fact: MemoryAtom) -> str:
    return f"{fact.content} ({fact.formed_at:%Y-%m-%d})"


def _current(session: Session, stream: MemoryStream, facts: Iterable[MemoryAtom]) -> str:
    """Return what a stream has already beside the numbered facts, as the session's person may know it."""
    latest = stream.atoms.active().seen_by(session.user).exclude(pk__in=[fact.pk for fact in facts]).newest_first()
    return current_text(stream, latest.values_list("content", flat=True)[:CURRENT_ITEMS])


def current_text(stream: MemoryStream, contents: Iterable[str]) -> str:
    """Return a stream's text and its latest items as a request has them."""
    return "\n".join([stream.consolidated_content, *contents]).strip()[:CURRENT_CHARS]


# --- think ---


def _closed_one(job: Job) -> Caller | None:
    """Return the first of the streams' own models that is left alone now; None where none is."""
    own = MemoryStream.objects.seen_by(session_of(job)).extracting().exclude(extraction_model="")
    callers = [language_model(model) for model in sorted({stream.own_model for stream in own} - {""})]
    return next((caller for caller in callers if Circuit.objects.open_of(caller)), None)


def _by_model(input: FormationInput) -> dict[str, list[StreamSection]]:
    """Return the sections by the model that forms them, blank for the one that is set for all; that one comes first."""
    groups: dict[str, list[StreamSection]] = {}
    for section in sorted(input.request.sections, key=lambda section: bool(input.streams[section.label].own_model)):
        groups.setdefault(input.streams[section.label].own_model, []).append(section)
    return groups


def _candidates(entry: Any, labels: Collection[str], input: FormationInput, dropped: Counter[str]) -> list[Candidate]:
    """Return the good items of one stream's entry, if it is one of those that were asked for."""
    label = str(entry.get("stream")) if isinstance(entry, dict) else ""
    stream = input.streams.get(label) if label in labels else None
    if stream is None:
        dropped["unknown stream"] += 1
        return []
    kinds = {
        MemoryAtom.Type.OBSERVATION: (
            stream.extracts_observations,
            stream.observation_max,
            stream.observation_max_words,
            "observations",
        ),
        MemoryAtom.Type.FACT: (stream.extracts_facts, _most_facts(stream), stream.fact_max_words, "facts"),
    }
    found = []
    for atom_type, (is_wanted, most, words, name) in kinds.items():
        items = entry.get(name)
        if not isinstance(items, list):
            dropped[f"{name} are no list"] += items is not None
            continue
        wanted = items if is_wanted else ()
        good = [one for item in wanted if (one := _candidate(item, label, atom_type, words, input, dropped))]
        dropped["over the stream's limit"] += len(good[most:])
        found += good[:most]
    return found


def _candidate(
    item: Any, label: str, atom_type: str, words: int, input: FormationInput, dropped: Counter[str]
) -> Candidate | None:
    try:
        draft = DraftAtom.model_validate(item)
    except ValidationError:
        dropped["wrong shape"] += 1
        return None
    text = cut_words(draft.text, words)
    sequences = sorted({index for index in draft.message_indexes if index in input.messages})
    if not text or "\0" in text:
        dropped["empty"] += 1
    elif not sequences:
        dropped["no source turn"] += 1
    elif not input.facts.keys() >= set(draft.ends):
        dropped["ends what is not listed"] += 1
    else:
        good = draft.model_copy(update={"text": text})
        return Candidate(label, input.streams[label], atom_type, sequences, good)
    return None


# --- commit ---


def _follow_up(job: Job, session: Session, input: FormationInput) -> None:
    """Ask for the next formation when this one took only a part, or when enough came in meanwhile."""
    rest = input.again[1:]
    if input.again and input.is_cut:
        rest = [[input.last_sequence + 1, input.again[0][1]], *rest]
    if rest or input.is_cut or is_due(session):
        params = {RANGES_AGAIN: rest} if rest else {}
        forced = bool(rest) or input.is_cut
        by = f"job:{job.job_id}"
        Job.objects.request(FormMemories.name, session, requested_by=by, force=forced, params=params)


def _atom(candidate: Candidate, stream: MemoryStream, job: Job, input: FormationInput) -> MemoryAtom:
    sources = [input.messages[sequence] for sequence in candidate.sequences]
    return MemoryAtom(
        stream=stream,
        **belonging_to(stream, input.session.user_id),
        atom_type=candidate.atom_type,
        content=candidate.draft.text,
        content_hash=content_hash(candidate.draft.text),
        valid_from=candidate.valid_from,
        confidence=candidate.draft.confidence,
        formed_at=_said_at(sources),
        source_session=input.session,
        source_message_ids=[message.pk for message in sources],
        job=job,
        prompt_version=input.prompt_version,
        engine=candidate.engine,
    )


def _end(atom: MemoryAtom, candidate: Candidate, input: FormationInput) -> int:
    """End what the engine says that an item ends, where that was said before; return how many facts."""
    if atom._state.adding:  # known already
        return 0
    named = {input.facts[number] for number in candidate.draft.ends} - {atom.pk}
    facts = MemoryAtom.objects.active().filter(pk__in=named, formed_at__lte=atom.formed_at)
    return sum(end_by(fact, atom) for fact in facts)


def _said_at(sources: Sequence[Message]) -> datetime:
    """Return the time of the last of the turns that an item comes from."""
    return max(sources, key=lambda message: message.sequence).created_at


def _count_from(session: Session, last_sequence: int) -> None:
    """Have the intervals count what came after this turn."""
    later = session.messages.turns().filter(user_id=session.user_id, sequence__gt=last_sequence)
    after = list(later.values_list("role", "tokens"))
    weighted = sum(settings.MEMORY_FORMATION.weighted(role, tokens) for role, tokens in after)
    session.formed_to = last_sequence
    session.formed_message_count = session.message_count - len(after)
    session.formed_weighted_tokens = session.weighted_tokens - weighted
    session.save(update_fields=["last_formation_sequence", "formed_message_count", "formed_weighted_tokens"])
