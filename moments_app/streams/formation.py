"""Formation: the engine's input from turns and streams, its answer, and the resulting atoms.

`form_memories` and `settle` share this code.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import Any, Self

from django.conf import settings
from django.db.models import F, FloatField, Q
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast, Floor, Greatest
from pydantic import ValidationError

from moments_app.engines import EngineFactory, language_model
from moments_app.engines.calls.formation import DraftAtom, FormationRequest, StreamSection
from moments_app.engines.interface import Engine, EngineError
from moments_app.engines.shared_call import Part
from moments_app.engines.statements.dates import start_in
from moments_app.engines.statements.named_people import is_proper_name
from moments_app.jobs.process import ProcessInput, Progress, active_prompt, no_progress, session_of
from moments_app.models import Cause, Circuit, Job, MemoryAtom, MemoryStream, PromptResource, PromptVersion
from moments_app.models.atom import content_hash
from moments_app.models.stream import LESSONS, LESSONS_DEFAULTS
from moments_app.moments.division import BuildInput, BuildResult, divide, only_request
from moments_app.prompts import MEMORY_EXTRACTION_URI
from moments_app.streams.add_atoms import add_to_streams, owner_columns
from moments_app.streams.known import KnownItems
from moments_app.streams.known_people import other_speakers, own_name, self_described_speaker
from moments_app.streams.timeline import end_in_favor_of
from moments_app.turns.engine_input import engine_turn
from sessions_app.models import Message, Session
from sessions_app.models.message import SequenceRange
from sessions_app.text.length import cut_words, weigh_tokens

MAX_TURNS = 200  # maximum turns of one run; a follow-up job forms the rest
FORMED = "memories_formed"  # type of the logged event
UNFORMED = F("message_count") - F("formed_message_count")
# Kinds of statements that are valid from a day mentioned in them.
LASTING = frozenset({"identity", "relationship", "home", "work", "health", "preference", "event"})


@dataclass(frozen=True)
class FormationInput(ProcessInput):
    prompt_version: PromptVersion
    session: Session  # with its counters at the claim
    streams: dict[str, MemoryStream]  # keyed by label in the engine's input
    own_name: str  # the name under which the user speaks; blank if the turns have no names
    request: FormationRequest
    messages: dict[int, Message]  # turns that the engine receives, keyed by sequence
    last_sequence: int  # the last turn that this run forms
    known: Mapping[int | str, int]  # primary keys of current statements, keyed by number in the prompt
    episodes: BuildInput | None = None  # the turns without a moment or draft, which the same call drafts
    is_cut: bool = False  # whether more turns are waiting than fit into one run
    # ranges of turns with withdrawn memories that are still to be formed; None for runs with new turns
    remaining: list[SequenceRange] | None = None
    # ranges of archived turns that this run could not read
    unreadable: list[SequenceRange] = field(default_factory=list)

    def with_prompt(self, version: PromptVersion) -> Self:
        """Return a copy with another prompt, without the drafting of episodes."""
        request = replace(self.request, prompt=version.content)
        return replace(self, prompt_version=version, request=request, episodes=None)

    def prompt_for(self, purpose: str) -> PromptVersion | None:
        if self.episodes and purpose == PromptResource.Purpose.MOMENT_BUILDER:
            return self.episodes.prompt_version
        return self.prompt_version


LetterKey = tuple[str, int | str]  # the label of a stream, and the letter of one of its new items


@dataclass(frozen=True)
class Candidate:
    label: str  # label of the stream
    atom_type: str
    sequences: list[int]
    draft: DraftAtom
    engine: str = ""

    @property
    def letter_key(self) -> LetterKey:
        return self.label, self.draft.letter


@dataclass(frozen=True)
class FormationResult:
    """The valid items of the engine's answer."""

    candidates: list[Candidate]
    lessons: list[Candidate]
    dropped: Counter[str]  # number of invalid items by reason
    engine: str
    built: BuildResult | None = None  # the draft episodes


def calls_before_settling() -> Combinable:
    """Return an expression for the number of formations that run before a session is settled."""
    conf = settings.MEMORY_FORMATION
    by_turns = Cast(F("message_count"), FloatField()) / float(conf.message_interval)
    return Floor(Greatest(by_turns, F("weighted_tokens") / float(conf.token_interval)))


# --- claim ---


def formation_prompt(session: Session) -> PromptVersion:
    return active_prompt(MEMORY_EXTRACTION_URI, session)


def formation_input(
    session: Session,
    turns: Sequence[Message],
    shown: Sequence[Message],
    streams: dict[str, MemoryStream],
    prompt: PromptVersion,
    known: KnownItems,
) -> FormationInput:
    """Return the input of a formation.

    Args:
        shown: the turns with content, as engines read them.
        streams: the streams that the session feeds, keyed by label.
    """
    own = own_name(session, shown)
    return FormationInput(
        prompt_version=prompt,
        session=session,
        streams=streams,
        own_name=own,
        request=_request(session, own, shown, streams, known, prompt),
        messages={turn.sequence: turn for turn in shown},
        last_sequence=turns[-1].sequence,
        known={number: atom.pk for number, atom in known.statements.items()},
    )


def by_label(streams: Iterable[MemoryStream]) -> dict[str, MemoryStream]:
    """Return streams, keyed by label. If two streams have the same label, add the agent to the label of the second."""
    labeled: dict[str, MemoryStream] = {}
    for stream in streams:
        label = stream.label if stream.label not in labeled else f"{stream.label} of {stream.agent_id or 'every agent'}"
        labeled[label] = stream
    return labeled


def _request(
    session: Session,
    own: str,
    shown: Sequence[Message],
    streams: Mapping[str, MemoryStream],
    known: KnownItems,
    prompt: PromptVersion,
) -> FormationRequest:
    max_tokens = settings.MOMENT_BUILDER.max_input_tokens
    return FormationRequest(
        turns=[engine_turn(turn, max_tokens, session.user.zone, index=turn.sequence) for turn in shown],
        sections=[_section(label, stream, known) for label, stream in streams.items()],
        prompt=prompt.content,
        others=other_speakers(session, shown, own),
    )


def _section(label: str, stream: MemoryStream, known: KnownItems) -> StreamSection:
    is_of_session = stream.stream_type == MemoryStream.Type.SESSION
    return StreamSection(
        label=label,
        prompt=stream.extraction_prompt,
        observation_words=stream.observation_max_words if stream.extracts_observations else 0,
        fact_words=stream.fact_max_words if stream.extracts_facts else 0,
        current=known.current.get(label, ""),
        known={
            number: _dated(atom)
            for number, atom in known.statements.items()
            if atom.stream_id == stream.pk or (is_of_session and number in known.of_other_sessions)
        },
    )


def _dated(atom: MemoryAtom) -> str:
    return f"{atom.content} ({atom.formed_at:%Y-%m-%d})"


def model_with_open_circuit(job: Job) -> EngineFactory | None:
    """Return the first model with an open circuit among the streams' own models, or None."""
    own = MemoryStream.objects.visible_to(session_of(job)).extracting().exclude(extraction_model="")
    engine_factories = [language_model(model) for model in sorted({stream.own_model for stream in own} - {""})]
    return next((factory for factory in engine_factories if Circuit.objects.open_for(factory)), None)


# --- think ---


def call_engine(input: FormationInput, engine: Engine, progress: Progress) -> FormationResult:
    """Extract statements and draft episodes from the turns, with one engine call if possible."""
    asked = engine
    if input.episodes and (parts := parts_of(input, input.episodes)):
        with suppress(EngineError):  # fall back to separate calls
            asked = engine.with_answers(parts)
    formed = form(input, asked, progress)
    return replace(formed, built=_drafted(input.episodes, asked) if input.episodes else None)


def _drafted(episodes: BuildInput, engine: Engine) -> BuildResult | None:
    """Return the drafts of episodes, or None if the answer is invalid. A build then calls the engine for the turns.

    Raises:
        EngineError: the engine could not be called.
    """
    try:
        return divide(episodes, engine, no_progress)
    except EngineError as error:
        if error.kind != "invalid_answer":
            raise
        return None


def parts_of(formation: FormationInput | None, build: BuildInput | None, number: int = 1) -> list[Part]:
    """Return those of a session's requests that can be combined with others in one call."""
    parts = []
    if build and (only := only_request(build)):
        request, chunk = only
        parts.append(Part(request, chunk.sequences, number))
    if formation and (sections := by_model(formation).get("")):
        memories = replace(formation.request, sections=sections)
        parts.append(Part(memories, [turn.index for turn in memories.turns], number))
    return parts


def form(
    input: FormationInput, engine: Engine, progress: Progress, earlier: Sequence[Candidate] = ()
) -> FormationResult:
    """Call the engine, once for each model of the streams, and collect the valid items of the answers.

    Args:
        earlier: items for earlier sessions of the agent in the same answer. This session's items can end them.
    """
    dropped: Counter[str] = Counter()
    candidates: list[Candidate] = []
    lessons: list[Candidate] = []
    groups = by_model(input)
    asked: list[str] = []
    used: set[LetterKey] = set()  # letters of this session's items, including dropped ones
    for number, (model, sections) in enumerate(groups.items()):
        progress(number, len(groups))
        formed_by = engine.with_model(model) if model else engine
        answer = formed_by.form_memories(replace(input.request, sections=sections))
        labels = {section.label for section in sections}
        used |= _used_letters(answer.streams)
        for entry in answer.streams:
            for one in _candidates(entry, labels, input, dropped):
                into = lessons if one.label == LESSONS else candidates
                into.append(replace(one, engine=formed_by.name))
        asked.append(formed_by.name)
    candidates = _with_valid_ends(candidates, [one for one in earlier if one.letter_key not in used], input, dropped)
    return FormationResult(candidates, lessons, dropped, ", ".join(asked))


def by_model(input: FormationInput) -> dict[str, list[StreamSection]]:
    """Return the sections, keyed by model. The default model has a blank name and comes first."""
    groups: dict[str, list[StreamSection]] = {}
    for section in sorted(input.request.sections, key=lambda section: bool(input.streams[section.label].own_model)):
        groups.setdefault(input.streams[section.label].own_model, []).append(section)
    return groups


def _candidates(entry: Any, labels: Collection[str], input: FormationInput, dropped: Counter[str]) -> list[Candidate]:
    """Return the valid items of an entry of the answer. Lessons have a separate label."""
    label = str(entry.get("stream")) if isinstance(entry, dict) else ""
    stream = input.streams.get(label) if label in labels else None
    if stream is None:
        dropped["unknown stream"] += 1
        return []
    observation, fact = MemoryAtom.Type.OBSERVATION, MemoryAtom.Type.FACT
    lists = {
        "observations": (label, observation, stream.observation_max_words if stream.extracts_observations else 0),
        "facts": (label, fact, stream.fact_max_words if stream.extracts_facts else 0),
        "lessons": (LESSONS, observation, LESSONS_DEFAULTS.observation_max_words),
    }
    found = []
    for name, (into, atom_type, words) in lists.items():
        items = entry.get(name)
        if not isinstance(items, list):
            dropped[f"{name} are not a list"] += items is not None
            continue
        wanted = items if words else ()
        found += [one for item in wanted if (one := _candidate(item, into, atom_type, words, input, dropped))]
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
    sequences = sorted({index for index in draft.turns if index in input.messages})
    if not text or "\0" in text:
        dropped["empty"] += 1
    elif not sequences:
        dropped["no source turn"] += 1
    else:
        return Candidate(label, atom_type, sequences, draft.model_copy(update={"text": text}))
    return None


def _used_letters(entries: Iterable[Any]) -> set[LetterKey]:
    return {
        (str(entry.get("stream")), letter)
        for entry in entries
        if isinstance(entry, dict)
        for letter in entry.get("letters", ())
    }


def _with_valid_ends(
    candidates: Sequence[Candidate], earlier: Sequence[Candidate], input: FormationInput, dropped: Counter[str]
) -> list[Candidate]:
    """Remove invalid references from the `ends` of items.

    An item can only end listed statements, and earlier items of its stream with a unique letter. A letter that also
    occurs in an earlier session refers to this session's item.
    """
    count = {**Counter(one.letter_key for one in earlier), **Counter(one.letter_key for one in candidates)}
    places = [(max(one.sequences), number) for number, one in enumerate(candidates)]
    of_letter = dict.fromkeys(count, (-1, -1))
    of_letter |= {one.letter_key: place for one, place in zip(candidates, places, strict=True)}
    checked = []
    for one, place in zip(candidates, places, strict=True):
        own, ends = one.draft.letter, one.draft.ends
        valid = [each for each in ends if each in input.known or (each != own and count.get((one.label, each)) == 1)]
        dropped["ends what is not listed"] += len(valid) < len(ends)
        # If two items end each other, only the later one is valid.
        valid = [each for each in valid if each in input.known or of_letter[one.label, each] < place]
        checked.append(replace(one, draft=one.draft.model_copy(update={"ends": valid})))
    return checked


# --- commit ---


@dataclass
class _Addition:
    job: Job
    input: FormationInput
    formed: FormationResult
    atoms: list[MemoryAtom]
    lessons: list[tuple[MemoryStream, list[MemoryAtom]]]  # the lessons, grouped by stream
    ended: list[MemoryAtom] = field(default_factory=list)  # facts that the atoms ended when they were added

    @property
    def items(self) -> list[tuple[MemoryStream, list[MemoryAtom]]]:
        pairs = list(zip(self.formed.candidates, self.atoms, strict=True))
        own = [
            (stream, [atom for item, atom in pairs if item.label == label])
            for label, stream in self.input.streams.items()
        ]
        return own + self.lessons

    @property
    def result(self) -> dict[str, Any]:
        """The result of the job, after the atoms are added."""
        added = sum(not atom._state.adding for atom in self.atoms)
        learned = {atom.content for _, learned in self.lessons for atom in learned if not atom._state.adding}
        dropped = self.formed.dropped + Counter({"known already": len(self.atoms) - added})
        unreadable = {"unreadable": self.input.unreadable} if self.input.unreadable else {}
        return {
            "atoms": added,
            "ended": len(self.ended),
            "lessons": len(learned),
            "streams": len(self.input.streams),
            "dropped": dict(dropped),
            "first_sequence": self.input.request.turns[0].index,
            "last_sequence": self.input.last_sequence,
            "again": self.input.remaining is not None,
            "engine": self.formed.engine,
            **unreadable,
        }


def store_formations(
    formations: Sequence[tuple[Job, FormationInput, FormationResult]], *, requested_by: str
) -> list[dict[str, Any]]:
    """Add the items of one person's formations, and end the facts that these items supersede.

    Return the results of the jobs.
    """
    additions = [_addition(*formation) for formation in formations]
    streams: dict[int, tuple[MemoryStream, list[MemoryAtom]]] = {}
    for stream, items in chain.from_iterable(one.items for one in additions):
        streams.setdefault(stream.pk, (stream, []))[1].extend(items)

    def end() -> list[MemoryAtom]:
        of_agents: dict[str, dict[LetterKey, int | None]] = defaultdict(dict)
        for one in additions:
            of_letter = of_agents[one.input.session.agent_id or ""]
            of_letter |= _lettered(one)
            one.ended = _end_named(one, of_letter)
        return [fact for one in additions for fact in one.ended]

    add_to_streams(list(streams.values()), requested_by=requested_by, end=end)
    return [one.result for one in additions]


def _addition(job: Job, input: FormationInput, formed: FormationResult) -> _Addition:
    """Return the atoms to add for a formation, unsaved. Create missing streams of lessons."""
    atoms = [_atom(item, input.streams[item.label], job, input) for item in formed.candidates]
    # In a trial, the streams may come from another claim whose transaction was rolled back.
    streams = MemoryStream.objects.ensure_lessons(input.session) if formed.lessons else ()
    lessons = [(stream, [_atom(lesson, stream, job, input) for lesson in formed.lessons]) for stream in streams]
    return _Addition(job, input, formed, atoms, lessons)


def _atom(candidate: Candidate, stream: MemoryStream, job: Job, input: FormationInput) -> MemoryAtom:
    sources = [input.messages[sequence] for sequence in candidate.sequences]
    draft, session = candidate.draft, input.session
    other = "" if stream.is_shard else self_described_speaker(draft.text, sources, input.request.others)
    about = other or ("" if stream.is_shard else _other_person(draft, input))
    return MemoryAtom(
        stream=stream,
        **owner_columns(stream, session.user),
        atom_type=candidate.atom_type,
        content=draft.text,
        content_hash=content_hash(draft.text),
        kind=draft.kind,
        about_kind=MemoryAtom.About.PERSON if about else MemoryAtom.About.SESSION,
        subject=about,
        speaker=other or _speaker(sources),
        valid_from=start_in(draft.text, _said_at(sources), session.user.zone) if draft.kind in LASTING else None,
        confidence=draft.confidence,
        formed_at=_said_at(sources),
        source_session=session,
        source_message_ids=[message.pk for message in sources],
        job=job,
        prompt_version=input.prompt_version,
        engine=candidate.engine,
    )


def _other_person(draft: DraftAtom, input: FormationInput) -> str:
    """Return the other person whom the engine assigned to an item; blank if the name is invalid or not in the item."""
    session, name = input.session, draft.other_person
    no_others = (session.user.user_id, input.own_name, session.agent_id or "", "Assistant")
    if name not in draft.text or name.casefold() in map(str.casefold, no_others):
        return ""
    return name if name in input.request.others or is_proper_name(name) else ""


def _said_at(sources: Sequence[Message]) -> datetime:
    return max(sources, key=lambda message: message.sequence).created_at


def _lettered(one: _Addition) -> dict[LetterKey, int | None]:
    """Return the primary keys of the items that have letters. For a duplicate, return the key of the existing row."""
    return {
        item.letter_key: atom.pk or MemoryAtom.objects.duplicates_of(atom).values_list("pk", flat=True).first()
        for atom, item in zip(one.atoms, one.formed.candidates, strict=True)
        if item.draft.letter
    }


def _end_named(one: _Addition, of_letter: Mapping[LetterKey, int | None]) -> list[MemoryAtom]:
    """End older statements that the engine listed as ended by the new items. Return the ended statements."""
    cause = Cause(f"job:{one.job.job_id}")
    ended: list[MemoryAtom] = []
    named = [
        (atom, {pk for each in item.draft.ends if (pk := one.input.known.get(each) or of_letter[item.label, each])})
        for atom, item in zip(one.atoms, one.formed.candidates, strict=True)
        if item.draft.ends and not atom._state.adding  # the atom was added
    ]
    named.sort(key=lambda one: one[0].formed_at)
    for atom, ends in named:
        ends.discard(atom.pk)
        corrected = MemoryAtom.objects.filter(pk__in=ends, is_wrong=True).exclude(ended_by="")  # since the claim
        same = Q(pk__in=ends) | Q(pk__in=corrected.values("replaced_by"))
        facts = MemoryAtom.objects.active().filter(same, user=one.input.session.user_id, formed_at__lte=atom.formed_at)
        ended += [fact for fact in facts if end_in_favor_of(fact, atom, cause)]
    return ended


def set_formed_to(session: Session, last_sequence: int) -> None:
    """Update the formation counters, so that the next formation counts only turns after `last_sequence`."""
    later = session.messages.turns().filter(user_id=session.user_id, sequence__gt=last_sequence)
    after = list(later.values_list("role", "tokens"))
    waiting = sum(weigh_tokens(role, tokens) for role, tokens in after)
    session.formed_to = last_sequence
    session.formed_message_count = session.message_count - len(after)
    session.formed_weighted_tokens = session.weighted_tokens - waiting
    session.save(update_fields=["last_formation_sequence", "formed_message_count", "formed_weighted_tokens"])


def _speaker(sources: Sequence[Message]) -> str:
    last = max(sources, key=lambda message: message.sequence)
    return (last.name or last.role)[:255]
