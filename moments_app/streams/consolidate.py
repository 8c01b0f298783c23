"""`consolidate`: the observations that wait in a stream are folded into its text, line by line.

Each line names the observations that it carries, and exactly those are absorbed. What no line carries waits on, and so
does what a line carried that is no longer in the text: see `stream_lines`. It doesn't ask for the next consolidation
once more, so an engine that loses things is not asked without end. What arrives meanwhile stays, and a failed call
changes nothing. Each consolidation is a version that can be undone.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from moments_app.engines import Caller, language_model
from moments_app.engines.base import ConsolidationRequest, Engine
from moments_app.jobs.process import ClaimLost, Moved, Skipped, complete, prompt_in_force
from moments_app.models import Job, MemoryAtom, MemoryStream, PromptVersion, StreamVersion
from moments_app.models.atom import MemoryAtomQuerySet
from moments_app.prompts import STREAM_CONSOLIDATION_URI
from moments_app.streams.lines import Folded, Line, Piece, fold, lines_of, recorded, told_by_words
from sessions_app.refusals import Refusal

NAME = "consolidate"
MAX_OBSERVATIONS = 200  # in one call; what is more stays for the next
MAX_AGAIN = 40  # of them that an earlier call had and no line carries: there may be room now, but seldom is
MAX_TOLD_BY_WORDS = 1_000  # observations compared with lines of which nothing is recorded
RECORDED = 20  # versions of a stream that keep what their lines carry: in each it is all that the text ever took in


class CannotUndo(Refusal):
    """The last consolidation can't be undone; the message says why."""


@dataclass(frozen=True)
class Work:
    """The input of a consolidation.

    Args:
        fixed: lines that were written by hand.
        lines: the other lines of the text.
        observations: that wait.
    """

    stream: MemoryStream
    prompt_version: PromptVersion
    request: ConsolidationRequest
    fixed: list[Line]
    lines: list[Piece]
    observations: list[Piece]

    @property
    def atom_ids(self) -> set[int]:
        """Primary keys of the observations in the call."""
        return {pk for piece in self.observations for pk in piece.carries}

    def with_prompt(self, version: PromptVersion) -> "Work":
        """The same input with other instructions."""
        return replace(self, prompt_version=version, request=replace(self.request, rules=version.content))


@dataclass(frozen=True)
class Consolidated:
    """What became of the engine's answer."""

    folded: Folded
    engine: str


def caller(job: Job) -> Caller:
    """Who writes for this process: the stream may have a model of its own."""
    assert job.stream is not None  # a consolidation is about a stream, always
    return language_model(job.stream.consolidation_model or settings.MEMORY_FORMATION.model)


def is_due(stream: MemoryStream) -> bool:
    """Whether enough observations are new in a stream that consolidates at all."""
    trigger = max(stream.consolidation_trigger, 1)
    return bool(stream.consolidation_prompt) and len(stream.atoms.fresh().values("pk")[:trigger]) == trigger


def ask_if_due(stream: MemoryStream, *, requested_by: str) -> None:
    """Asks for a consolidation when enough observations are new."""
    if is_due(stream):
        Job.objects.request(NAME, stream=stream, requested_by=requested_by)


# --- claim ---


def claim(job: Job) -> Work | Skipped:
    """Reads the text and the observations.

    Raises:
        CannotRun: when the prompt resource has no active version.
    """
    stream = job.stream
    assert stream is not None  # a consolidation is about a stream, always
    if not stream.consolidation_prompt or (not job.force and not is_due(stream)):
        return Skipped("not due: too few observations are new, or the stream doesn't consolidate")
    observations = [
        Piece(f"O{number}", f"[{atom.formed_at:%Y-%m-%d}] {atom.content}", (atom.pk,), atom.formed_at)
        for number, atom in enumerate(_observations(stream), start=1)
    ]
    lines = current_lines(stream)
    fixed = [line for line in lines if line.is_by_hand]
    room = stream.consolidated_max_words - sum(len(line.text.split()) for line in fixed)
    if not observations or room <= 0:
        return Skipped("no observations wait" if room > 0 else "what was written by hand fills the text")
    prompt_version = prompt_in_force(STREAM_CONSOLIDATION_URI)
    old = _pieces(stream, [line for line in lines if not line.is_by_hand])
    request = ConsolidationRequest(
        prompt=stream.consolidation_prompt,
        fixed=[line.text for line in fixed],
        lines=[piece.labelled for piece in old],
        observations=[piece.labelled for piece in observations],
        max_words=room,
        rules=prompt_version.content,
    )
    return Work(stream, prompt_version, request, fixed, old, observations)


def _observations(stream: MemoryStream) -> list[MemoryAtom]:
    """What is new, and the latest of what earlier calls had; oldest first."""
    new = list(stream.atoms.fresh().in_order()[:MAX_OBSERVATIONS])
    again = stream.atoms.waiting().exclude(shown_in=None).newest_first()
    found = [*new, *again[: min(MAX_AGAIN, MAX_OBSERVATIONS - len(new))]]
    return sorted(found, key=lambda atom: (atom.formed_at, atom.pk))


def current_lines(stream: MemoryStream) -> list[Line]:
    """The lines of a stream's text, each with what it carries."""
    last = last_version(stream)
    lines = lines_of(stream.consolidated_content, last)
    if last is None or last.lines is not None:
        return lines
    absorbed = _absorbed(stream).newest_first()[:MAX_TOLD_BY_WORDS]
    return told_by_words(lines, dict(absorbed.values_list("pk", "content")))


def is_carried(atom: MemoryAtom) -> bool:
    """Whether a line of its stream's text says it; where that wasn't recorded yet, whatever was absorbed is."""
    if atom.state != MemoryAtom.State.ABSORBED:
        return False
    last = last_version(atom.stream)
    is_recorded = last is None or last.lines is not None
    return not is_recorded or any(atom.pk in line.carries for line in current_lines(atom.stream))


def _pieces(stream: MemoryStream, lines: Sequence[Line]) -> list[Piece]:
    """The lines as an engine gets them; what was taken out of memory since, they carry no longer."""
    named = {pk for line in lines for pk in line.carries}
    times = dict(_absorbed(stream).filter(pk__in=named).values_list("pk", "formed_at"))
    pieces = []
    for number, line in enumerate(lines, start=1):
        carries = tuple(pk for pk in line.carries if pk in times)
        newest = {"time": max(times[pk] for pk in carries)} if carries else {}
        pieces.append(Piece(f"L{number}", line.text, carries, **newest))
    return pieces


def _absorbed(stream: MemoryStream) -> MemoryAtomQuerySet:
    return stream.atoms.filter(state=MemoryAtom.State.ABSORBED)


# --- think ---


def think(work: Work, engine: Engine, progress: Callable[[int, int], None]) -> Consolidated:
    """Calls the engine, once.

    Raises:
        EngineError: when it gave no valid answer.
    """
    progress(0, 1)
    answer = engine.consolidate(work.request)
    folded = fold(work.fixed, work.lines, work.observations, answer.lines, work.request.max_words)
    return Consolidated(folded, engine.name)


# --- commit ---


def commit(job: Job, work: Work, made: Consolidated) -> None:
    """Writes the version and the text, and absorbs what the text carries.

    Raises:
        ClaimLost: the job was taken over, or the stream is gone.
        Moved: the text was edited, or an observation withdrawn or erased, while the engine was thinking.
    """
    stream = MemoryStream.objects.select_for_update(no_key=True).filter(pk=work.stream.pk).first()
    if stream is None or not job.is_claimed():
        raise ClaimLost
    if stream.consolidated_content != work.stream.consolidated_content:
        raise Moved("The stream's text was edited while the engine was thinking.")
    shown = MemoryAtom.objects.active().filter(stream=stream, pk__in=work.atom_ids)
    if shown.count() < len(work.atom_ids):
        raise Moved("Some of the observations are gone.")
    version = stream.versions.create(
        user_id=stream.user_id,
        content_before=stream.consolidated_content,
        content_after=made.folded.text,
        lines=recorded(made.folded.lines),
        job=job,
        engine=made.engine,
    )
    _forget_old_records(stream)
    shown.filter(shown_in=None).update(shown_in=version)
    carried = shown.filter(pk__in=made.folded.carried)
    absorbed = carried.update(state=MemoryAtom.State.ABSORBED, absorbed_in=version)
    released = _let_go(version, work, made.folded)
    stream.consolidated_content, stream.last_updated_at = made.folded.text, timezone.now()
    stream.save(update_fields=["consolidated_content", "last_updated_at"])
    result = {
        "stream": stream.label,
        "absorbed": absorbed,
        "waiting": len(work.atom_ids) - absorbed,
        "released": released,
        "lines": len(made.folded.lines),
        "words": len(made.folded.text.split()),
        "dropped": dict(made.folded.dropped),
        "engine": made.engine,
    }
    complete(job, "stream_consolidated", result)


def _forget_old_records(stream: MemoryStream) -> None:
    pks = stream.versions.filter(lines__isnull=False).order_by("-pk").values_list("pk", flat=True)
    stream.versions.filter(pk__in=list(pks[RECORDED:])).update(lines=None)


def _let_go(version: StreamVersion, work: Work, folded: Folded) -> int:
    """What lines carried that are no longer in the text waits again; returns how much."""
    gone = {pk for piece in work.lines for pk in piece.carries} - folded.carried
    release(_absorbed(version.stream).filter(pk__in=gone).newest_first())
    waiting = MemoryAtom.objects.active().filter(pk__in=gone)
    waiting.filter(shown_in=None).update(shown_in=version)
    return waiting.count()


# --- going back ---


def last_version(stream: MemoryStream) -> StreamVersion | None:
    """The consolidation that undoing would take back."""
    return stream.versions.filter(undone_at=None).order_by("-id").first()


@transaction.atomic
def undo(stream: MemoryStream) -> StreamVersion:
    """Takes the last consolidation back: the text is as before, and what it absorbed waits again.

    Raises:
        CannotUndo: there is none, or the text was edited since.
    """
    stream = MemoryStream.objects.select_for_update(no_key=True).get(pk=stream.pk)
    version = last_version(stream)
    if version is None:
        raise CannotUndo("There is no consolidation to undo.")
    if stream.consolidated_content != version.content_after:
        raise CannotUndo("The text was edited since; undoing would lose that.")
    stream.consolidated_content, stream.last_updated_at = version.content_before, timezone.now()
    stream.save(update_fields=["consolidated_content", "last_updated_at"])
    version.undone_at = timezone.now()
    version.save(update_fields=["undone_at"])
    wait_again([version])
    carry_again(stream)
    return version


def wait_again(versions: Iterable[StreamVersion]) -> None:
    """What these consolidations absorbed waits again, as if they had not been."""
    pks = [version.pk for version in versions]
    absorbed = MemoryAtom.objects.filter(absorbed_in__in=pks, state=MemoryAtom.State.ABSORBED)
    release(absorbed.newest_first().iterator())
    MemoryAtom.objects.filter(shown_in__in=pks).update(shown_in=None)


def carry_again(stream: MemoryStream) -> None:
    """What a line of the text carries doesn't wait beside it: a consolidation that let go of it was taken back."""
    last = last_version(stream)
    carried = {pk for line in lines_of(stream.consolidated_content, last) for pk in line.carries}
    waiting = stream.atoms.waiting().filter(pk__in=carried)
    waiting.update(state=MemoryAtom.State.ABSORBED, absorbed_in=last)


def release(absorbed: Iterable[MemoryAtom]) -> None:
    """What was absorbed waits again, unless the same was said again since: then that one waits."""
    for atom in absorbed:
        same = MemoryAtom.objects.active().filter(stream=atom.stream_id, content_hash=atom.content_hash)
        if not same.exists():
            MemoryAtom.objects.filter(pk=atom.pk).update(state=MemoryAtom.State.ACTIVE, absorbed_in=None)


def go_back_before(version: StreamVersion) -> None:
    """Takes a consolidation back and all later ones, with their texts: as if they had not been.

    Whatever was edited in the stream's text since goes as well; pinned text stays. The caller has the stream locked.
    """
    stream = version.stream
    later = stream.versions.filter(pk__gte=version.pk)
    wait_again(later)
    stream.consolidated_content, stream.last_updated_at = version.content_before, timezone.now()
    stream.save(update_fields=["consolidated_content", "last_updated_at"])
    later.delete()
    carry_again(stream)


def failed(job: Job, error: str) -> None:
    """Nothing is to be undone: a consolidation writes nothing before its commit."""
