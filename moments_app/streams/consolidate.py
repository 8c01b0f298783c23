"""Merge a stream's waiting observations into its text, line by line.

Each line of the answer lists the observations that it carries. Only these observations are merged; the others keep
waiting. If a line is removed from the text, its observations wait again. Waiting observations remain in contexts and
searches as separate items. Observations that were in an earlier call don't trigger another consolidation, so an engine
that drops observations is not called endlessly. Observations that arrive during a call stay, and a failed call changes
nothing. A consolidation can be undone.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Self

from django.conf import settings
from django.db.models import F, FloatField, Sum, Value
from django.db.models.functions import Cast

from moments_app.engines import EngineFactory, engine_name, language_model
from moments_app.engines.calls.texts import ConsolidationRequest, DraftLine, LabeledText
from moments_app.engines.interface import Engine
from moments_app.jobs.process import (
    ClaimLost,
    InputChanged,
    Process,
    ProcessInput,
    Progress,
    Skipped,
    Workload,
    active_prompt,
    complete,
    stream_of,
    turns_to_estimate,
)
from moments_app.models import (
    Cause,
    Job,
    MemoryAtom,
    MemoryStream,
    PromptResource,
    PromptVersion,
    StatementChange,
)
from moments_app.models.atom import MemoryAtomQuerySet, content_hash
from moments_app.models.job import JobQuerySet
from moments_app.models.stream import USER_DEFAULTS
from moments_app.prompts import STREAM_CONSOLIDATION_URI
from moments_app.streams.add_atoms import is_due
from moments_app.streams.texts import CannotUndo, mark_waiting, next_time, reason_of, set_lines, undo
from sessions_app.database.sql import lock_rows

# The time of a line whose observations are unknown. Such a line is kept, because its content would otherwise be lost.
ALWAYS = datetime.max.replace(tzinfo=UTC)
MAX_OBSERVATIONS = 200  # maximum observations in one call; the others wait for the next call
MAX_REPEATED = 40  # maximum observations to send again if earlier calls did not merge them; they rarely fit later
PROMPT_TOKENS = 1_150  # estimated tokens of the prompt, current text and observations of a call


@dataclass(frozen=True)
class Line:
    text: str
    carries: tuple[int, ...] = ()  # primary keys of the line's observations
    is_manual: bool = False  # whether a person wrote the line, which then stays unchanged


@dataclass(frozen=True)
class Piece:
    """A part of the engine's input: a current line, or an observation whose text starts with its date."""

    label: str  # identifies the piece in the answer
    text: str
    carries: tuple[int, ...]  # primary keys of the observations
    time: datetime = ALWAYS  # the time of the newest observation

    @property
    def labeled(self) -> LabeledText:
        return LabeledText(self.label, self.text)


@dataclass(frozen=True)
class ConsolidatedText:
    lines: list[Line]  # lines written by hand first, then remaining lines, then the answer's lines
    dropped: Counter[str] = field(default_factory=Counter)  # rejected parts of the answer, by reason
    engine: str = ""

    @property
    def content(self) -> str:
        return "\n".join(line.text for line in self.lines)

    @property
    def carried(self) -> set[int]:
        return {pk for line in self.lines for pk in line.carries}


@dataclass(frozen=True)
class _Candidate:
    """A line that may become part of the new text, and the pieces that it carries."""

    text: str
    pieces: tuple[Piece, ...]

    @property
    def labels(self) -> set[str]:
        return {piece.label for piece in self.pieces}

    @property
    def order(self) -> tuple[datetime, int]:
        """The rank: recent lines first, because they are most likely to be valid; then lines with more observations."""
        return max(piece.time for piece in self.pieces), sum(len(piece.carries) for piece in self.pieces)

    @property
    def words(self) -> int:
        return len(self.text.split())


def consolidated(
    fixed: Sequence[Line], old: Sequence[Piece], new: Sequence[Piece], drafts: Sequence[DraftLine], max_words: int
) -> ConsolidatedText:
    """Combine an answer's lines and current lines into the new text.

    Lines are included whole, newest first, as long as they fit. A line without known pieces is rejected, because its
    sources would be unknown. A piece is carried if all lines that list it fit. A current line that isn't carried is
    kept if it fits. A current line with unknown observations is always kept.

    Args:
        fixed: lines that were written by hand, which are kept.
        old: other current lines.
        new: observations.
        max_words: maximum total words of the other lines.
    """
    pieces = {piece.label: piece for piece in [*old, *new]}
    dropped: Counter[str] = Counter()
    fixed_hashes = {content_hash(line.text) for line in fixed}
    new_drafts = [draft for draft in drafts if content_hash(draft.text) not in fixed_hashes]
    dropped["written by hand already"] += len(drafts) - len(new_drafts)
    candidates = [found for draft in new_drafts if (found := _candidate(draft, pieces, dropped))]
    named = {label for one in candidates for label in one.labels}
    staying = sum(len(piece.text.split()) for piece in old if not piece.carries and piece.label not in named)
    fitting = _fitting(candidates, max_words - staying)
    dropped["over the word limit"] += len(candidates) - len(fitting)
    lost = {label for one in candidates if one not in fitting for label in one.labels}
    taken = [one for one in fitting if one.labels - lost]
    carried = {label for one in taken for label in one.labels} - lost
    left = [_Candidate(piece.text, (piece,)) for piece in old if piece.label not in carried]
    kept = _fitting(left, max_words - sum(one.words for one in taken))
    lines = [_line(one, set()) for one in kept] + [_line(one, lost) for one in taken]
    return ConsolidatedText([*fixed, *_merge_equal(lines)], +dropped)


def _candidate(draft: DraftLine, pieces: Mapping[str, Piece], dropped: Counter[str]) -> _Candidate | None:
    labels = list(dict.fromkeys(draft.carries))
    known = tuple(pieces[label] for label in labels if label in pieces)
    dropped["unknown label"] += len(labels) - len(known)
    text = " ".join(draft.text.split())
    if text and known:
        return _Candidate(text, known)
    dropped["line that carries nothing"] += 1
    return None


def _fitting(candidates: Sequence[_Candidate], max_words: int) -> list[_Candidate]:
    """Return the candidates that fit completely, in their current order."""
    chosen: list[int] = []
    room = max_words
    for number in sorted(range(len(candidates)), key=lambda n: candidates[n].order, reverse=True):
        if candidates[number].words <= room:
            chosen.append(number)
            room -= candidates[number].words
    return [candidates[number] for number in sorted(chosen)]


def _line(candidate: _Candidate, lost: set[str]) -> Line:
    carries = (pk for piece in candidate.pieces if piece.label not in lost for pk in piece.carries)
    return Line(candidate.text, tuple(dict.fromkeys(carries)))


def _merge_equal(lines: Sequence[Line]) -> list[Line]:
    found: dict[str, Line] = {}
    for line in lines:
        key = content_hash(line.text)
        before = found.get(key, line)
        found[key] = Line(before.text, tuple(dict.fromkeys(before.carries + line.carries)))
    return list(found.values())


@dataclass(frozen=True)
class ConsolidationInput(ProcessInput):
    prompt_version: PromptVersion
    stream: MemoryStream  # at the time of the claim
    request: ConsolidationRequest
    fixed: list[Line]  # lines that were written by hand
    lines: list[Piece]  # the other lines of the text
    observations: list[Piece]

    @property
    def atom_ids(self) -> set[int]:
        return {pk for piece in self.observations for pk in piece.carries}

    def with_prompt(self, version: PromptVersion) -> Self:
        return replace(self, prompt_version=version, request=replace(self.request, rules=version.content))


class Consolidate(Process[ConsolidationInput, ConsolidatedText]):
    name = "consolidate"
    title = "Merge observations"
    output = "new observations in the text that contexts show"
    prompt_purpose = PromptResource.Purpose.STREAM_CONSOLIDATION

    def engine_factory(self, job: Job) -> EngineFactory:
        return language_model(stream_of(job).consolidation_model or settings.ENGINE.model)

    def jobs_of_same_engine(self, job: Job) -> JobQuerySet:
        return super().jobs_of_same_engine(job).filter(stream__consolidation_model=stream_of(job).consolidation_model)

    def workload(self, *, everything: bool) -> Workload:
        # Estimate from the number of observations, because a consolidation is due after enough new ones.
        turns = turns_to_estimate(F("message_count") - F("formed_message_count"), everything=everything)
        formations = USER_DEFAULTS.consolidation_trigger / USER_DEFAULTS.observation_max
        calls = Sum(Cast(turns, FloatField())) / (settings.MEMORY_FORMATION.message_interval * formations)
        engine = engine_name(settings.ENGINE.model)
        return Workload(engine, calls, Sum(Value(0.0)), usual_answer=500, prompt_tokens=PROMPT_TOKENS)

    def claim(self, job: Job) -> ConsolidationInput | Skipped:
        stream = stream_of(job)
        if not stream.consolidation_prompt or (not job.force and not is_due(stream)):
            return Skipped("not due: there are too few new observations, or no instructions for merging them")
        observations = _observations(stream)
        lines = list(stream.atoms.lines())
        fixed = [Line(line.content, is_manual=True) for line in lines if not line.engine]
        room = stream.consolidated_max_words - sum(len(line.text.split()) for line in fixed)
        if not observations or room <= 0:
            return Skipped(
                "no observations are waiting" if room > 0 else "the lines written by hand leave no space in the text"
            )
        prompt_version = active_prompt(STREAM_CONSOLIDATION_URI, stream)
        old = _pieces(stream, [line for line in lines if line.engine])
        request = ConsolidationRequest(
            prompt=stream.consolidation_prompt,
            fixed=[line.text for line in fixed],
            lines=[piece.labeled for piece in old],
            observations=[piece.labeled for piece in observations],
            max_words=room,
            rules=prompt_version.content,
        )
        return ConsolidationInput(prompt_version, stream, request, fixed, old, observations)

    def think(self, input: ConsolidationInput, engine: Engine, progress: Progress) -> ConsolidatedText:
        progress(0, 1)
        answer = engine.consolidate(input.request)
        text = consolidated(input.fixed, input.lines, input.observations, answer.lines, input.request.max_words)
        return replace(text, engine=engine.name)

    def commit(self, job: Job, input: ConsolidationInput, answer: ConsolidatedText) -> None:
        """Write the lines, and merge the observations that they carry.

        Raises:
            ClaimLost: the job was taken over, or the stream was deleted.
            InputChanged: the text was edited, or an observation was withdrawn or erased, while the engine was working.
        """
        stream, shown = _lock_unchanged(job, input)
        time = next_time(stream)
        cause = Cause(f"job:{job.job_id}", reason_of(time))
        absorbed = shown.filter(pk__in=answer.carried).count()
        shown.filter(consolidated_at=None).update(consolidated_at=time)
        stream.atoms.lines().filter(consolidated_at=None).update(consolidated_at=time)
        texts = [line.text for line in answer.lines]
        rows = set_lines(stream, texts, cause, engine=answer.engine, job=job, consolidated_at=time)
        _merge(answer.lines, rows, cause)
        released = _mark_waiting(stream, input, answer, cause)
        result = {
            "stream": stream.label,
            "absorbed": absorbed,
            "waiting": len(input.atom_ids) - absorbed,
            "released": released,
            "lines": len(answer.lines),
            "words": len(answer.content.split()),
            "dropped": dict(answer.dropped),
            "engine": answer.engine,
        }
        complete(job, "stream_consolidated", result)

    def rewind(self, job: Job) -> bool:
        stream = stream_of(job)
        try:
            undo(stream, requested_by=f"job:{job.job_id}")
        except CannotUndo:
            return False
        stream.refresh_from_db()
        return True


# --- claim ---


def _observations(stream: MemoryStream) -> list[Piece]:
    """Return new observations and the latest observations from earlier calls, oldest first."""
    new = list(stream.atoms.fresh().in_order()[:MAX_OBSERVATIONS])
    again = stream.atoms.waiting().exclude(consolidated_at=None).newest_first()
    found = [*new, *again[: min(MAX_REPEATED, MAX_OBSERVATIONS - len(new))]]
    return [
        Piece(f"O{number}", f"[{atom.formed_at:%Y-%m-%d}] {atom.content}", (atom.pk,), atom.formed_at)
        for number, atom in enumerate(sorted(found, key=lambda atom: (atom.formed_at, atom.pk)), start=1)
    ]


def _pieces(stream: MemoryStream, lines: Sequence[MemoryAtom]) -> list[Piece]:
    times = dict(stream.atoms.filter(merged_into__in=lines).values_list("pk", "formed_at"))
    newest = [max((times[pk] for pk in line.carries), default=ALWAYS) for line in lines]
    return [
        Piece(f"L{number}", line.content, tuple(line.carries), time)
        for number, (line, time) in enumerate(zip(lines, newest, strict=True), start=1)
    ]


# --- commit ---


def _lock_unchanged(job: Job, input: ConsolidationInput) -> tuple[MemoryStream, MemoryAtomQuerySet]:
    """Return the locked stream and the observations that the engine received.

    Raises:
        ClaimLost, InputChanged: as in `commit`.
    """
    stream = MemoryStream.objects.select_for_update(no_key=True).filter(pk=input.stream.pk).first()
    if stream is None or not job.is_claimed():
        raise ClaimLost
    if stream.consolidated_content != input.stream.consolidated_content:
        raise InputChanged("The text was edited while the engine was working.")
    read = {*input.atom_ids, *(pk for piece in input.lines for pk in piece.carries)}
    lock_rows(MemoryAtom.objects.filter(pk__in=read))
    shown = MemoryAtom.objects.active().filter(stream=stream, pk__in=input.atom_ids)
    if shown.count() < len(input.atom_ids):
        raise InputChanged("Some of the observations no longer exist.")
    return stream, shown


def _merge(lines: Sequence[Line], rows: Sequence[MemoryAtom], cause: Cause) -> None:
    """Merge items into the rows of the lines that carry them.

    If several lines carry an item, choose the line with the fewest items.
    """
    by_text = {row.content_hash: row for row in rows}
    into = {
        pk: by_text[content_hash(line.text)].pk
        for line in sorted(lines, key=lambda line: len(line.carries), reverse=True)
        for pk in line.carries
    }
    was = dict(MemoryAtom.objects.current().filter(pk__in=into).values_list("pk", "merged_into"))
    for row in rows:
        parts = [pk for pk, line in was.items() if into[pk] == row.pk != line]
        MemoryAtom.objects.filter(pk__in=parts).change(
            StatementChange.Action.MERGED, cause, state=MemoryAtom.State.ABSORBED, merged_into=row
        )


def _mark_waiting(stream: MemoryStream, input: ConsolidationInput, text: ConsolidatedText, cause: Cause) -> int:
    """Mark items as waiting again if their line is no longer in the text. Return their number."""
    gone = stream.atoms.filter(pk__in={pk for piece in input.lines for pk in piece.carries} - text.carried)
    mark_waiting(gone.filter(state=MemoryAtom.State.ABSORBED).newest_first(), cause)
    return gone.active().count()
