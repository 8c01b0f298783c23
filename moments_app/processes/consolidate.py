"""`consolidate`: the observations that wait in a stream are folded into its text.

Exactly those that were in the call are absorbed; what arrives meanwhile stays. A failed call changes nothing. Each
consolidation is a version that can be undone.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from moments_app.engines import Caller, language_model
from moments_app.engines.base import ConsolidationRequest, Engine
from moments_app.models import Job, MemoryAtom, MemoryStream, PromptVersion, StreamVersion
from moments_app.processes.base import ClaimLost, Moved, Skipped, complete, prompt_in_force
from moments_app.prompts import STREAM_CONSOLIDATION_URI

NAME = "consolidate"
MAX_OBSERVATIONS = 200  # in one call; what is more stays for the next


@dataclass(frozen=True)
class Work:
    """The input of a consolidation."""

    stream: MemoryStream
    prompt_version: PromptVersion
    request: ConsolidationRequest
    atom_ids: list[int]

    def with_prompt(self, version: PromptVersion) -> "Work":
        """The same input with other instructions."""
        return replace(self, prompt_version=version, request=replace(self.request, rules=version.content))


@dataclass(frozen=True)
class Consolidated:
    """What the engine made of it."""

    text: str
    engine: str


def caller(job: Job) -> Caller:
    """Who writes for this process: the stream may have a model of its own."""
    assert job.stream is not None  # a consolidation is about a stream, always
    return language_model(job.stream.consolidation_model or settings.MEMORY_FORMATION.model)


def is_due(stream: MemoryStream) -> bool:
    """Whether enough observations wait in a stream that consolidates at all."""
    waiting = stream.atoms.active().observations().unpinned()
    return bool(stream.consolidation_prompt) and waiting.count() >= max(stream.consolidation_trigger, 1)


def ask_if_due(stream: MemoryStream, *, requested_by: str) -> None:
    """Asks for a consolidation when enough observations wait."""
    if is_due(stream):
        Job.objects.request(NAME, stream=stream, requested_by=requested_by)


def claim(job: Job) -> Work | Skipped:
    """Reads the text and the observations.

    Raises:
        CannotRun: when the prompt resource has no active version.
    """
    stream = job.stream
    assert stream is not None  # a consolidation is about a stream, always
    if not stream.consolidation_prompt or (not job.force and not is_due(stream)):
        return Skipped("not due: too few observations wait, or the stream doesn't consolidate")
    atoms = list(stream.atoms.active().observations().unpinned().in_order()[:MAX_OBSERVATIONS])
    if not atoms:
        return Skipped("no observations wait")
    prompt_version = prompt_in_force(STREAM_CONSOLIDATION_URI)
    return Work(
        stream=stream,
        prompt_version=prompt_version,
        request=ConsolidationRequest(
            prompt=stream.consolidation_prompt,
            current=stream.consolidated_content,
            observations=[f"[{atom.formed_at:%Y-%m-%d}] {atom.content}" for atom in atoms],
            max_words=stream.consolidated_max_words,
            rules=prompt_version.content,
        ),
        atom_ids=[atom.pk for atom in atoms],
    )


def think(work: Work, engine: Engine, progress: Callable[[int, int], None]) -> Consolidated:
    """Calls the engine, once.

    Raises:
        EngineError: when it gave no valid answer.
    """
    progress(0, 1)
    return Consolidated(engine.consolidate(work.request).text.strip(), engine.name)


def commit(job: Job, work: Work, made: Consolidated) -> None:
    """Writes the version and the text, and absorbs what was in the call.

    Raises:
        ClaimLost: the job was taken over, or the stream is gone.
        Moved: the text was edited, or an observation withdrawn or erased, while the engine was thinking.
    """
    stream = MemoryStream.objects.select_for_update(no_key=True).filter(pk=work.stream.pk).first()
    if stream is None or not job.is_claimed():
        raise ClaimLost
    if stream.consolidated_content != work.stream.consolidated_content:
        raise Moved("The stream's text was edited while the engine was thinking.")
    waiting = MemoryAtom.objects.active().filter(stream=stream, pk__in=work.atom_ids)
    if waiting.count() < len(work.atom_ids):
        raise Moved("Some of the observations are gone.")
    text = cut_lines(made.text, stream.consolidated_max_words)
    version = stream.versions.create(
        user_id=stream.user_id,
        content_before=stream.consolidated_content,
        content_after=text,
        job=job,
        engine=made.engine,
    )
    absorbed = waiting.update(state=MemoryAtom.State.ABSORBED, absorbed_in=version)
    stream.consolidated_content, stream.last_updated_at = text, timezone.now()
    stream.save(update_fields=["consolidated_content", "last_updated_at"])
    result = {"stream": stream.label, "absorbed": absorbed, "words": len(text.split()), "engine": made.engine}
    complete(job, "stream_consolidated", result)


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


def last_version(stream: MemoryStream) -> StreamVersion | None:
    """The consolidation that undoing would take back."""
    return stream.versions.filter(undone_at=None).order_by("-id").first()


@transaction.atomic
def undo(stream: MemoryStream) -> StreamVersion:
    """Takes the last consolidation back: the text is as before, and what it absorbed waits again.

    Raises:
        ValueError: there is none, or the text was edited since.
    """
    stream = MemoryStream.objects.select_for_update(no_key=True).get(pk=stream.pk)
    version = last_version(stream)
    if version is None:
        raise ValueError("There is no consolidation to undo.")
    if stream.consolidated_content != version.content_after:
        raise ValueError("The text was edited since; undoing would lose that.")
    stream.consolidated_content, stream.last_updated_at = version.content_before, timezone.now()
    stream.save(update_fields=["consolidated_content", "last_updated_at"])
    version.undone_at = timezone.now()
    version.save(update_fields=["undone_at"])
    release(version.absorbed.all())
    return version


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
    release(MemoryAtom.objects.filter(absorbed_in__in=later).order_by("-formed_at", "-id").iterator())
    MemoryStream.objects.filter(pk=stream.pk).update(
        consolidated_content=version.content_before, last_updated_at=timezone.now()
    )
    later.delete()


def failed(job: Job, error: str) -> None:
    """Nothing is to be undone: a consolidation writes nothing before its commit."""
