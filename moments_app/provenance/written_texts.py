"""The texts that engines wrote from turns: of moments, of rolling summaries, and of partition events (digests).

A correction changes the stored texts, so readers of a text need no knowledge of corrections.
"""

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

from moments_app.models import Correction, Moment, Summary
from moments_app.moments.partition import rewrite
from moments_app.streams.texts import merged, merged_text
from moments_app.turns.rewording import Rewording, sentences_of
from sessions_app.models import Message, Session

Row = Moment | Summary | Message
KINDS: dict[type[Row], str] = {Moment: "moment", Summary: "summary", Message: "event"}
FIELDS: dict[type[Row], tuple[str, ...]] = {
    Moment: ("summary", "detail"),
    Summary: ("text", "facts"),
    Message: ("context", "lessons", "recent_moments_summary"),  # in the payload of a partition event
}


def texts_of(row: Row) -> dict[str, Any]:
    """Return the texts of a row, keyed by field. A value is a text, a list of texts, or a summary's list of facts.

    Omit other values, which imported rows may have.
    """
    if isinstance(row, Message):
        payload = row.payload if isinstance(row.payload, dict) else {}
        found = {name: payload.get(name) for name in FIELDS[Message]}
    else:
        found = {name: getattr(row, name) for name in FIELDS[type(row)]}
    return {name: text for name, text in found.items() if _is_text(text)}


def _is_text(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(one.get("fact") if isinstance(one, dict) else one, str) for one in value)
    return isinstance(value, str)


def as_one_text(text: Any) -> str:
    """Return a value of `texts_of` as one text, with a line for each item of a list."""
    if isinstance(text, str):
        return text
    return "\n".join(one["fact"] if isinstance(one, dict) else one for one in text)


def address_of(row: Row) -> str:
    """Return the `rem://` address of a row. A partition event has the sequence of the turn before it."""
    if isinstance(row, Moment):
        return row.uri
    session = f"rem://sessions/{row.session.session_id}"
    return f"{session}/summary" if isinstance(row, Summary) else f"{session}/messages/{row.sequence}#event"


def set_text(row: Row, field: str, text: Any) -> None:
    """Store a text of a row. For a moment, delete the vectors of the former text."""
    if isinstance(row, Message):
        rewrite(row, (row.payload or {}) | {field: text}, is_of_request=True)
        return
    setattr(row, field, text)
    if isinstance(row, Moment):
        row.save(update_fields=[field, "updated_at"])
        row.embeddings.all().delete()
    else:
        row.save(update_fields=[field])


def reworded(text: Any, rewordings: Collection[Rewording]) -> Any:
    """Apply rewordings to a value of `texts_of`. Omit lines and list items that become empty."""
    if isinstance(text, str):
        lines = [(line, _reworded(line, rewordings)) for line in text.split("\n")]
        return "\n".join(new for line, new in lines if new or not line.strip())
    items = [(one, reworded(one["fact"] if isinstance(one, dict) else one, rewordings)) for one in text]
    return [one | {"fact": new} if isinstance(one, dict) else new for one, new in items if new]


def _reworded(line: str, rewordings: Collection[Rewording]) -> str:
    """Return a line after rewordings. An unchanged line keeps its spaces, and a changed line its indentation."""
    old = new = line.strip()
    for rewording in rewordings:
        new = rewording.of(new)
    if new == old:
        return line
    return line[: len(line) - len(line.lstrip())] + new if new else ""


def merged_texts(base: Any, before: Any, after: Any) -> Any:
    """Return `merged_text` for a text of `texts_of`. Lists are merged by their items."""
    if isinstance(base, str):
        return merged_text(base, before, after)
    keys = [[json.dumps(one, sort_keys=True) for one in items] for items in (base, before, after)]
    return [json.loads(key) for key in merged(*keys)]


def of_sessions(user: int, sessions: Collection[int]) -> Iterator[Row]:
    """Yield the summaries and partition events of a person's sessions, oldest first."""
    summaries = Summary.objects.completed().filter(user=user, session__in=sessions)
    yield from summaries.select_related("session").order_by("pk")
    events = Message.objects.partitions().filter(user_id=user, session__in=sessions)
    yield from events.select_related("session").order_by("session", "sequence", "pk")


def of_session_since(session: Session, at: datetime) -> Iterator[Row]:
    """Yield the rows written from a session's turns since a time."""
    yield from session.moments.filter(created_at__gte=at)
    yield from Summary.objects.for_session(session).completed().filter(completed_at__gte=at)
    yield from session.messages.partitions().filter(user_id=session.user_id, arrived_at__gte=at)


def reword(rows: Iterable[Row], rewordings: Collection[Rewording]) -> None:
    """Apply rewordings to the texts of rows, and save the changed texts."""
    for row in rows if rewordings else ():
        for field, text in texts_of(row).items():
            if (new := reworded(text, rewordings)) != text:
                set_text(row, field, new)


def undoing(correction: Correction, *, replaces_names: bool = True) -> Rewording:
    """Return the rewording that reverts a correction."""
    return Rewording(correction.after, correction.before, fact=correction.after, replaces_names=replaces_names)


# --- texts that were restored by the undo of a retraction ---


def apply_edits_since(rows: Iterable[Row], session: Session, at: datetime) -> None:
    """Apply corrections made or undone since a time to older texts."""
    rows = list(rows)
    own = Correction.objects.filter(user=session.user_id)
    made = own.standing().filter(turns__session=session, created_at__gt=at).distinct()
    undone = own.filter(undone_at__gt=at, created_at__lte=at)
    edits = [*((one.created_at, _apply, one) for one in made), *((one.undone_at, _undo, one) for one in undone)]
    for _at, edit, correction in sorted(edits, key=lambda edit: (edit[0], edit[2].pk)):
        for row in rows:
            for field, text in texts_of(row).items():
                edit(row, field, text, correction)


def _apply(row: Row, field: str, text: Any, correction: Correction) -> None:
    """Change a text, and record the change so that the correction can be undone."""
    after = reworded(text, [Rewording(correction.before, correction.after, fact=correction.before)])
    if after == text:
        return
    set_text(row, field, after)
    place = {"kind": KINDS[type(row)], "ref": address_of(row), "pk": row.pk, "field": field}
    correction.changes = [*correction.changes, place | {"before": text, "after": after}]
    correction.save(update_fields=["changes"])


def _undo(row: Row, field: str, text: Any, correction: Correction) -> None:
    """Restore a text changed by a correction that has been undone."""
    place = (KINDS[type(row)], row.pk, field)
    for change in correction.changes:
        if (change["kind"], change["pk"], change["field"]) == place:
            set_text(row, field, restored(change, text, correction))


def restored(change: dict[str, Any], now: Any, correction: Correction) -> Any:
    """Return the current text without the correction's change. Later changes to the text are kept."""
    if now == change["after"]:
        return change["before"]
    if correction.kind == Correction.Kind.CORRECTED:
        before = frozenset(sentences_of(as_one_text(change["before"])))
        return reworded(now, [replace(undoing(correction), keeps=before)])
    return merged_texts(change["before"], change["after"], now)
