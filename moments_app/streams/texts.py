"""The text of a stream: its lines, the versions that consolidations left, and going back to an earlier one."""

from collections.abc import Iterable, Sequence

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from moments_app.models import Cause, MemoryAtom, MemoryStream, StatementChange, StreamVersion
from moments_app.models.atom import MemoryAtomQuerySet
from moments_app.streams.lines import Line, lines_of, told_by_words
from moments_app.streams.three_way_merge import merged_text
from sessions_app.refusals import Refusal

MAX_TOLD_BY_WORDS = 1_000  # observations compared with lines of which nothing is recorded


# --- the text as it is ---


class CannotUndo(Refusal):
    """The last consolidation can't be undone. The message says why."""

    code = "cannot_undo"


def last_version(stream: MemoryStream) -> StreamVersion | None:
    """Return the consolidation that undoing would take back."""
    return stream.versions.filter(undone_at=None).order_by("-id").first()


def absorbed_in(stream: MemoryStream) -> MemoryAtomQuerySet:
    """Return the observations that the text of a stream has absorbed."""
    return stream.atoms.filter(state=MemoryAtom.State.ABSORBED)


def current_lines(stream: MemoryStream) -> list[Line]:
    """Return the lines of a stream's text, each with what it carries."""
    last = last_version(stream)
    lines = lines_of(stream.consolidated_content, last)
    if last is None or last.lines is not None:
        return lines
    absorbed = absorbed_in(stream).newest_first()[:MAX_TOLD_BY_WORDS]
    return told_by_words(lines, dict(absorbed.values_list("pk", "content")))


def is_carried(atom: MemoryAtom) -> bool:
    """Tell whether a line of its stream's text says it; where lines were not recorded yet, the text says all that was
    absorbed.
    """
    if atom.state != MemoryAtom.State.ABSORBED:
        return False
    last = last_version(atom.stream)
    is_recorded = last is None or last.lines is not None
    return not is_recorded or any(atom.pk in line.carries for line in current_lines(atom.stream))


# --- going back ---


@transaction.atomic
def undo(stream: MemoryStream, *, requested_by: str) -> StreamVersion:
    """Undo the last consolidation: restore the text, and return absorbed items to the waiting ones.

    Args:
        stream: whose text.
        requested_by: key:…, operator:… or job:….

    Raises:
        CannotUndo: there is none, or the text was edited since.
    """
    stream = MemoryStream.objects.select_for_update(no_key=True).get(pk=stream.pk)
    version = last_version(stream)
    if version is None:
        raise CannotUndo("There is no consolidation to undo.")
    if stream.consolidated_content != version.content_after:
        raise CannotUndo("The text was edited since. Undoing the consolidation would lose the edit.")
    stream.consolidated_content, stream.last_updated_at = version.content_before, timezone.now()
    stream.save(update_fields=["consolidated_content", "last_updated_at"])
    version.undone_at = timezone.now()
    version.save(update_fields=["undone_at"])
    cause = Cause(requested_by)
    wait_again([version], cause)
    carry_again(stream, cause)
    return version


def wait_again(versions: Iterable[StreamVersion], cause: Cause) -> None:
    """Make what these consolidations absorbed wait again, as if they had not been."""
    pks = [version.pk for version in versions]
    absorbed = MemoryAtom.objects.filter(absorbed_in__in=pks, state=MemoryAtom.State.ABSORBED)
    let_wait(absorbed.newest_first().iterator(), cause)
    MemoryAtom.objects.filter(shown_in__in=pks).update(shown_in=None)


def carry_again(stream: MemoryStream, cause: Cause) -> None:
    """Absorb again what a line of the text carries and a consolidation had let go of that was taken back."""
    last = last_version(stream)
    carried = {pk for line in lines_of(stream.consolidated_content, last) for pk in line.carries}
    waiting = stream.atoms.waiting().filter(pk__in=carried)
    waiting.change(StatementChange.Action.MERGED, cause, state=MemoryAtom.State.ABSORBED, absorbed_in=last)


def let_wait(absorbed: Iterable[MemoryAtom], cause: Cause) -> None:
    """Make absorbed observations wait again, unless the same was said again since: then that one waits."""
    for atom in absorbed:
        if not MemoryAtom.objects.like(atom).exists():
            waiting = {"state": MemoryAtom.State.ACTIVE, "absorbed_in": None}
            MemoryAtom.objects.filter(pk=atom.pk).change(StatementChange.Action.SPLIT, cause, **waiting)


def go_back_before(version: StreamVersion, cause: Cause) -> None:
    """Take a consolidation back and all later ones, with their texts: as if they had not been.

    Whatever was edited in the stream's text since goes as well; pinned text stays. The caller has the stream locked.
    """
    stream = version.stream
    later = stream.versions.filter(pk__gte=version.pk)
    wait_again(later, cause)
    stream.consolidated_content, stream.last_updated_at = version.content_before, timezone.now()
    stream.save(update_fields=["consolidated_content", "last_updated_at"])
    later.delete()
    carry_again(stream, cause)


# --- taking out what a text was made of ---


def versions_given(atoms: Iterable[MemoryAtom]) -> list[StreamVersion]:
    """Return those from the first on that was given one of the atoms: each was made of the text before it."""
    first: dict[int, int] = {}
    for atom in atoms:
        for version in filter(None, (atom.shown_in_id, atom.absorbed_in_id)):
            first[atom.stream_id] = min(version, first.get(atom.stream_id, version))
    later = Q(pk__in=[])
    for stream, version in first.items():
        later |= Q(stream_id=stream, pk__gte=version)
    return list(StreamVersion.objects.filter(later).select_related("stream").order_by("pk"))


def text_without(stream: MemoryStream, versions: Sequence[StreamVersion]) -> str:
    """Return a stream's text as it was before some versions, with what people have changed since.

    Args:
        stream: with its text as it is.
        versions: of the stream, all from some time on, oldest first.
    """
    in_force = [version for version in versions if version.undone_at is None]
    befores = [version.content_before for version in in_force] + [stream.consolidated_content]
    text = befores.pop(0)
    for version, before_next in zip(in_force, befores, strict=True):
        text = merged_text(text, version.content_after, before_next)
    return text


def take_back(streams: Sequence[MemoryStream], versions: Sequence[StreamVersion], cause: Cause) -> None:
    """Give streams, which are locked, the texts from before these versions; what the versions had absorbed waits again.

    What people have written into the texts since stays.
    """
    for stream in streams:
        if own := [version for version in versions if version.stream_id == stream.pk]:
            stream.consolidated_content = text_without(stream, own)
        stream.last_updated_at = timezone.now()
        stream.save(update_fields=["consolidated_content", "last_updated_at"])
    wait_again(versions, cause)
    StreamVersion.objects.filter(pk__in=[version.pk for version in versions]).delete()
    for stream in streams:
        carry_again(stream, cause)
