"""The text of a stream. Each line is a statement. Write lines, undo consolidations, and merge versions."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

from django.db import transaction
from django.db.models import Max, Q
from django.utils import timezone

from moments_app.engines.words import words_of
from moments_app.models import Cause, MemoryAtom, MemoryStream, StatementChange
from moments_app.models.atom import MemoryAtomQuerySet, content_hash
from moments_app.models.correction import StatementChangeQuerySet
from sessions_app.database.sql import lock_rows
from sessions_app.models import UserProfile
from sessions_app.refusals import Refusal

CONSOLIDATION_PREFIX = "consolidation:"  # prefix of `reason` for changes by a consolidation; its time follows


class CannotUndo(Refusal):
    """The last consolidation can't be undone. The message says why."""

    code = "cannot_undo"


# --- writing ---


def is_in_line(atom: MemoryAtom) -> bool:
    """Return whether an item was merged into a line that is still in its stream's text."""
    line = atom.merged_into
    return atom.state == MemoryAtom.State.ABSORBED and line is not None and line.state == MemoryAtom.State.LINE


def split_lines(text: str) -> list[str]:
    return [line for line in re.split(r"\r?\n", text) if line.strip()]


def line_key(text: str) -> str:
    """Return a key that is equal for lines with the same words. A line without words, such as ---, is its own key."""
    return content_hash(text) if words_of(text) else text.strip()


def lock_stream(stream: int, user: int | None) -> None:
    """Lock a stream's person and then the stream. Corrections, erasures and consolidations use the same order."""
    lock_rows(UserProfile.objects.filter(pk__in=[user] if user else []))
    lock_rows(MemoryStream.objects.filter(pk=stream))


@transaction.atomic
def write_text(stream: MemoryStream, text: str, *, actor: str) -> None:
    """Replace the text of a person's stream or a shard. A blank text removes all lines.

    If only the punctuation or spaces of a line change, it stays the same statement.
    """
    lock_stream(stream.pk, stream.user_id)
    set_lines(stream, split_lines(text), Cause(actor), written_by=actor)
    stream.refresh_from_db(fields=["consolidated_content", "last_updated_at"])


def set_lines(stream: MemoryStream, texts: Iterable[str], cause: Cause, **columns: Any) -> list[MemoryAtom]:
    """Replace the lines of a locked stream's text, and return the new lines in order.

    Args:
        columns: column values for new lines.
    """
    old_lines = list(stream.atoms.lines())
    old = {line_key(line.content): line for line in old_lines}
    fields = {"user_id": stream.user_id, "atom_type": MemoryAtom.Type.OBSERVATION, "state": MemoryAtom.State.LINE}
    lines, position = [], 0
    for key, text in {line_key(text): text for text in texts}.items():
        if line := old.get(key):
            position = max(position, line.position or 0)
            same = MemoryAtom.objects.filter(pk=line.pk)
            same.change(StatementChange.Action.EDITED, cause, content=text, position=position)
        else:
            line = stream.atoms.create(**fields, content=text, position=position, **columns)
        lines.append(line)
        position += 1
    gone = MemoryAtom.objects.filter(pk__in={line.pk for line in old_lines} - {line.pk for line in lines})
    gone.change(StatementChange.Action.EVICTED, cause, state=MemoryAtom.State.EVICTED)
    stream.refresh()
    return lines


def mark_waiting(absorbed: Iterable[MemoryAtom], cause: Cause) -> None:
    """Mark merged observations as waiting again, unless the stream has a newer observation with the same text."""
    for atom in absorbed:
        has_duplicate = MemoryAtom.objects.duplicates_of(atom).exists()
        state = {} if has_duplicate else {"state": MemoryAtom.State.ACTIVE}
        MemoryAtom.objects.filter(pk=atom.pk).change(StatementChange.Action.SPLIT, cause, **state, merged_into=None)


def remove_lines_with(atoms: Iterable[MemoryAtom], cause: Cause) -> None:
    """Remove the lines that contain one of the items, and mark the other items of these lines as waiting again.

    Call this before the items end.
    """
    merged = {atom.merged_into_id: atom.stream_id for atom in atoms if atom.merged_into_id}
    lock_rows(MemoryStream.objects.filter(pk__in={*merged.values()}))
    lines = MemoryAtom.objects.filter(pk__in=merged, state=MemoryAtom.State.LINE)
    parts = list(MemoryAtom.objects.filter(merged_into__in=lines, state=MemoryAtom.State.ABSORBED).newest_first())
    lines.change(StatementChange.Action.EVICTED, cause, state=MemoryAtom.State.EVICTED)
    mark_waiting(parts, cause)


# --- consolidations ---


def next_time(stream: MemoryStream) -> datetime:
    """Return the time to record for a new consolidation of a locked stream. It is always after the last one."""
    last = last_time(stream)
    return timezone.now() if last is None else max(timezone.now(), last + timedelta(microseconds=1))


def last_time(stream: MemoryStream) -> datetime | None:
    """Return when the stream was last consolidated, ignoring consolidations that were undone."""
    last: datetime | None = stream.atoms.aggregate(last=Max("consolidated_at"))["last"]
    return last


def reason_of(time: datetime) -> str:
    return f"{CONSOLIDATION_PREFIX}{time.isoformat()}"


@transaction.atomic
def undo(stream: MemoryStream, *, requested_by: str) -> None:
    """Undo the last consolidation: restore the previous lines, and mark merged items as waiting again.

    Raises:
        CannotUndo: the stream has no consolidation to undo.
    """
    stream = MemoryStream.objects.select_for_update(no_key=True).get(pk=stream.pk)
    last = last_time(stream)
    if last is None:
        raise CannotUndo("There is no merge to undo.")
    undo_since(stream, last, Cause(requested_by))


def first_consolidated(atoms: Iterable[MemoryAtom]) -> dict[int, datetime]:
    """Return the time at which a consolidation first received one of the atoms, keyed by the stream's primary key.

    Lines written since then may be derived from the atoms.
    """
    first: dict[int, datetime] = {}
    for atom in atoms:
        if atom.consolidated_at:
            first[atom.stream_id] = min(atom.consolidated_at, first.get(atom.stream_id, atom.consolidated_at))
    return first


def changed_since(stream: int, time: datetime) -> MemoryAtomQuerySet:
    """Return the statements that `undo_since` may change, without the lines that it deletes."""
    atoms = MemoryAtom.objects.filter(stream=stream)
    written = atoms.written_since(time)
    changed = _changes_since(stream, time).values("statement")
    given = Q(consolidated_at__gte=time) | Q(merged_into__in=written) | Q(pk__in=changed)
    if written.filter(state=MemoryAtom.State.LINE, parts=None).exists():  # lines whose parts weren't recorded
        given |= Q(state=MemoryAtom.State.ABSORBED, merged_into=None)
    return atoms.filter(given).exclude(pk__in=written).order_by("pk")


def undo_since(stream: MemoryStream, time: datetime, cause: Cause) -> None:
    """Undo the consolidations of a locked stream since a time.

    Delete the lines written by the consolidations, and restore the lines removed by them. Observations that are no
    longer in any line wait again. Lines that people wrote are kept, and lines that people removed stay removed.
    """
    atoms = list(changed_since(stream.pk, time).select_for_update(no_key=True))
    before: dict[int, dict[str, Any]] = {}
    for change in _changes_since(stream.pk, time).newest_first():
        before[change.statement_id] = before.get(change.statement_id, {}) | change.columns
    MemoryAtom.objects.filter(stream=stream).written_since(time).delete()
    # Don't restore a line if one of its items has ended since, or if another line says the same thing.
    ended_lines = {
        before.get(atom.pk, {}).get("merged_into_id", atom.merged_into_id) for atom in atoms if not _is_current(atom)
    }
    keys = {line_key(line.content) for line in stream.atoms.lines()}
    for atom in atoms:
        if atom.position is None or atom.pk not in before:
            continue
        if before[atom.pk].get("state") == MemoryAtom.State.LINE:
            if atom.pk in ended_lines or line_key(atom.content) in keys:
                continue
            keys.add(line_key(atom.content))
        MemoryAtom.objects.filter(pk=atom.pk).change(StatementChange.Action.RESTORED, cause, **before[atom.pk])
    lines = set(stream.atoms.lines().values_list("pk", flat=True))
    for atom in sorted(atoms, key=attrgetter("formed_at", "pk"), reverse=True):
        if atom.position is None:
            _split(atom, before.get(atom.pk, {}), lines, cause)
    stream.atoms.filter(consolidated_at__gte=time).update(consolidated_at=None)
    stream.refresh()


def _is_current(atom: MemoryAtom) -> bool:
    return atom.state in (MemoryAtom.State.ACTIVE, MemoryAtom.State.ABSORBED)


def _split(atom: MemoryAtom, before: Mapping[str, Any], lines: Collection[int], cause: Cause) -> None:
    """Put an item back into the restored line that contained it. If there is none, mark the item as waiting."""
    state, line = before.get("state", atom.state), before.get("merged_into_id", atom.merged_into_id)
    may_merge = _is_current(atom) and not atom.is_pinned
    if may_merge and state == MemoryAtom.State.ABSORBED and line in lines:
        merged = {"state": MemoryAtom.State.ABSORBED, "merged_into_id": line}
        MemoryAtom.objects.filter(pk=atom.pk).change(StatementChange.Action.MERGED, cause, **merged)
    elif atom.state == MemoryAtom.State.ABSORBED:
        mark_waiting([atom], cause)


def _changes_since(stream: int, time: datetime) -> StatementChangeQuerySet:
    changes = StatementChange.objects.filter(statement__stream=stream, reason__startswith=CONSOLIDATION_PREFIX)
    return changes.filter(reason__gte=reason_of(time))


# --- versions ---
#
# After a retraction, a text returns to its version from before the retracted turn. People's later changes to it are
# kept. Texts are compared sentence by sentence, so sentences that people did not change are restored as well.


def merged(base: Sequence[str], before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Apply the difference between `before` and `after` to `base`."""
    remaining = [item for item in base if item in after or item not in before]
    return remaining + [item for item in after if item not in before and item not in remaining]


def merged_text(base: str, before: str, after: str) -> str:
    if before == after:
        return base
    parts = merged(_sentences(base), _sentences(before), _sentences(after))
    return "\n".join(parts) if "\n" in base + after else " ".join(parts)


def _sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.!?。])\s+|\n+", text) if part.strip()]
