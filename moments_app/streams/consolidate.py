"""`consolidate`: the observations that wait in a stream are taken into its text, line by line.

Each line names the observations that it carries, and exactly those are absorbed. What no line carries waits on, and so
does what a line carried that is no longer in the text: see `lines`. It doesn't ask for the next consolidation once
more, so an engine that loses things is not asked without end. What arrives meanwhile stays, and a failed call changes
nothing. Each consolidation is a version that can be undone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from django.conf import settings
from django.db.models import F, FloatField, Sum, Value
from django.db.models.functions import Cast
from django.utils import timezone

from moments_app.engines import Caller, engine_name, language_model
from moments_app.engines.calls.consolidation import ConsolidationRequest
from moments_app.engines.interface import Engine
from moments_app.jobs.process import (
    ClaimLost,
    Moved,
    Process,
    ProcessInput,
    Progress,
    Skipped,
    complete,
    prompt_in_force,
    stream_of,
)
from moments_app.jobs.workload import Workload, turns_that
from moments_app.models import (
    Cause,
    Job,
    MemoryAtom,
    MemoryStream,
    PromptResource,
    PromptVersion,
    StatementChange,
    StreamVersion,
)
from moments_app.models.atom import MemoryAtomQuerySet
from moments_app.models.job import JobQuerySet
from moments_app.models.stream import USER_DEFAULTS
from moments_app.prompts import STREAM_CONSOLIDATION_URI
from moments_app.streams.add_atoms import is_due
from moments_app.streams.lines import ConsolidatedText, Line, Piece, consolidated, recorded
from moments_app.streams.texts import CannotUndo, absorbed_in, current_lines, let_wait, undo
from sessions_app.lock_rows import lock_rows

MAX_OBSERVATIONS = 200  # in one call; what is more stays for the next
MAX_AGAIN = 40  # of them that an earlier call had and no line carries: there may be room now, but seldom is
PROMPT_TOKENS = 1_150  # of a call: prompt, the text so far, observations
RECORDED = 20  # versions of a stream that keep what their lines carry: in each it is all that the text ever took in


@dataclass(frozen=True)
class ConsolidationInput(ProcessInput):
    """The input of a consolidation.

    Args:
        stream: as it was at the claim.
        request: what the engine gets.
        fixed: lines that were written by hand.
        lines: the other lines of the text.
        observations: that wait.
    """

    prompt_version: PromptVersion
    stream: MemoryStream
    request: ConsolidationRequest
    fixed: list[Line]
    lines: list[Piece]
    observations: list[Piece]

    @property
    def atom_ids(self) -> set[int]:
        """Primary keys of the observations in the call."""
        return {pk for piece in self.observations for pk in piece.carries}

    def with_prompt(self, version: PromptVersion) -> Self:
        """Return the same input with other instructions."""
        return replace(self, prompt_version=version, request=replace(self.request, rules=version.content))


@dataclass(frozen=True)
class Consolidated:
    """The text that the engine's answer makes."""

    text: ConsolidatedText
    engine: str


class Consolidate(Process[ConsolidationInput, Consolidated]):
    """Takes the observations of a stream into its text."""

    name = "consolidate"
    makes = "new facts in the text that contexts show"
    prompt_purpose = PromptResource.Purpose.STREAM_CONSOLIDATION

    def caller(self, job: Job) -> Caller:
        """Return who writes; the stream may have a model of its own."""
        return language_model(stream_of(job).consolidation_model or settings.ENGINE.model)

    def alike(self, job: Job) -> JobQuerySet:
        """Return the jobs of streams with the same model."""
        return super().alike(job).filter(stream__consolidation_model=stream_of(job).consolidation_model)

    def workload(self, *, everything: bool) -> Workload:
        """Reckon with as many formations as fill a person's stream, each of as many turns as make one due."""
        turns = turns_that(F("message_count") - F("formed_message_count"), everything=everything)
        formations = USER_DEFAULTS.consolidation_trigger / USER_DEFAULTS.observation_max
        calls = Sum(Cast(turns, FloatField())) / (settings.MEMORY_FORMATION.message_interval * formations)
        engine = engine_name(settings.ENGINE.model)
        return Workload(engine, calls, Sum(Value(0.0)), usual_answer=500, prompt_tokens=PROMPT_TOKENS)

    def claim(self, job: Job) -> ConsolidationInput | Skipped:
        """Read the text and the observations."""
        stream = stream_of(job)
        if not stream.consolidation_prompt or (not job.force and not is_due(stream)):
            return Skipped("not due: too few observations are new, or the stream doesn't consolidate")
        observations = _observations(stream)
        lines = current_lines(stream)
        fixed = [line for line in lines if line.is_by_hand]
        room = stream.consolidated_max_words - sum(len(line.text.split()) for line in fixed)
        if not observations or room <= 0:
            return Skipped("no observations wait" if room > 0 else "what was written by hand fills the text")
        prompt_version = prompt_in_force(STREAM_CONSOLIDATION_URI, stream)
        old = _pieces(stream, [line for line in lines if not line.is_by_hand])
        request = ConsolidationRequest(
            prompt=stream.consolidation_prompt,
            fixed=[line.text for line in fixed],
            lines=[piece.labelled for piece in old],
            observations=[piece.labelled for piece in observations],
            max_words=room,
            rules=prompt_version.content,
        )
        return ConsolidationInput(prompt_version, stream, request, fixed, old, observations)

    def think(self, input: ConsolidationInput, engine: Engine, progress: Progress) -> Consolidated:
        """Call the engine, once."""
        progress(0, 1)
        answer = engine.consolidate(input.request)
        text = consolidated(input.fixed, input.lines, input.observations, answer.lines, input.request.max_words)
        return Consolidated(text, engine.name)

    def commit(self, job: Job, input: ConsolidationInput, answer: Consolidated) -> None:
        """Write the version and the text, and absorb what the text carries.

        Raises:
            ClaimLost: the job was taken over, or the stream is gone.
            Moved: the text was edited, or an observation withdrawn or erased, while the engine was thinking.
        """
        stream, shown = _still_there(job, input)
        version = stream.versions.create(
            user_id=stream.user_id,
            content_before=stream.consolidated_content,
            content_after=answer.text.content,
            lines=recorded(answer.text.lines),
            job=job,
            engine=answer.engine,
        )
        _forget_old_records(stream)
        shown.filter(shown_in=None).update(shown_in=version)
        carried = shown.filter(pk__in=answer.text.carried)
        cause, merged = Cause(f"job:{job.job_id}"), {"state": MemoryAtom.State.ABSORBED, "absorbed_in": version}
        absorbed = carried.change(StatementChange.Action.MERGED, cause, **merged)
        released = _let_go(version, input, answer.text, cause)
        stream.consolidated_content, stream.last_updated_at = answer.text.content, timezone.now()
        stream.save(update_fields=["consolidated_content", "last_updated_at"])
        result = {
            "stream": stream.label,
            "absorbed": absorbed,
            "waiting": len(input.atom_ids) - absorbed,
            "released": released,
            "lines": len(answer.text.lines),
            "words": len(answer.text.content.split()),
            "dropped": dict(answer.text.dropped),
            "engine": answer.engine,
        }
        complete(job, "stream_consolidated", result)

    def rewind(self, job: Job) -> bool:
        stream = stream_of(job)
        try:
            undo(stream, requested_by=f"job:{job.job_id}")
        except CannotUndo:  # there is none, or the text was edited since
            return False
        stream.refresh_from_db()
        return True


# --- claim ---


def _observations(stream: MemoryStream) -> list[Piece]:
    """Return what is new, and the latest of what earlier calls had; oldest first."""
    new = list(stream.atoms.fresh().in_order()[:MAX_OBSERVATIONS])
    again = stream.atoms.waiting().exclude(shown_in=None).newest_first()
    found = [*new, *again[: min(MAX_AGAIN, MAX_OBSERVATIONS - len(new))]]
    return [
        Piece(f"O{number}", f"[{atom.formed_at:%Y-%m-%d}] {atom.content}", (atom.pk,), atom.formed_at)
        for number, atom in enumerate(sorted(found, key=lambda atom: (atom.formed_at, atom.pk)), start=1)
    ]


def _pieces(stream: MemoryStream, lines: Sequence[Line]) -> list[Piece]:
    """Return the lines as an engine gets them; they no longer carry what was taken out of memory since."""
    named = {pk for line in lines for pk in line.carries}
    times = dict(absorbed_in(stream).filter(pk__in=named).values_list("pk", "formed_at"))
    pieces = []
    for number, line in enumerate(lines, start=1):
        carries = tuple(pk for pk in line.carries if pk in times)
        newest = {"time": max(times[pk] for pk in carries)} if carries else {}
        pieces.append(Piece(f"L{number}", line.text, carries, **newest))
    return pieces


# --- commit ---


def _still_there(job: Job, input: ConsolidationInput) -> tuple[MemoryStream, MemoryAtomQuerySet]:
    """Return the stream, locked, and the observations that the engine was shown; refuse what moved."""
    stream = MemoryStream.objects.select_for_update(no_key=True).filter(pk=input.stream.pk).first()
    if stream is None or not job.is_claimed():
        raise ClaimLost
    if stream.consolidated_content != input.stream.consolidated_content:
        raise Moved("The stream's text was edited while the engine was thinking.")
    told = {*input.atom_ids, *(pk for piece in input.lines for pk in piece.carries)}
    lock_rows(MemoryAtom.objects.filter(pk__in=told))
    shown = MemoryAtom.objects.active().filter(stream=stream, pk__in=input.atom_ids)
    if shown.count() < len(input.atom_ids):
        raise Moved("Some of the observations are gone.")
    return stream, shown


def _forget_old_records(stream: MemoryStream) -> None:
    pks = stream.versions.filter(lines__isnull=False).order_by("-pk").values_list("pk", flat=True)
    stream.versions.filter(pk__in=list(pks[RECORDED:])).update(lines=None)


def _let_go(version: StreamVersion, input: ConsolidationInput, text: ConsolidatedText, cause: Cause) -> int:
    """Make wait again what lines carried that are no longer in the text; return how much."""
    gone = {pk for piece in input.lines for pk in piece.carries} - text.carried
    let_wait(absorbed_in(version.stream).filter(pk__in=gone).newest_first(), cause)
    waiting = MemoryAtom.objects.active().filter(pk__in=gone)
    waiting.filter(shown_in=None).update(shown_in=version)
    return waiting.count()
