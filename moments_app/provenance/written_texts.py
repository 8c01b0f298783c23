"""The texts that engines wrote from turns: of moments, of rolling summaries, and of partition events (digests).

A correction changes these texts. So nothing that reads them needs to know about corrections.
"""

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Any

from moments_app.models import Correction, Moment, Summary
from moments_app.moments.partition import rewrite
from moments_app.turns.rewording import Rewording, without
from sessions_app.models import Message, Session

Row = Moment | Summary | Message
FIELDS: dict[type[Row], tuple[str, ...]] = {
    Moment: ("summary", "detail"),
    Summary: ("text", "facts"),
    Message: ("context", "lessons", "recent_moments_summary"),  # in the payload of a partition event
}


def texts_of(row: Row) -> dict[str, Any]:
    """Return the texts of a row by field: each is a text, a list of texts, or the list of a summary's facts."""
    if isinstance(row, Message):
        payload = row.payload or {}
        return {name: payload[name] for name in FIELDS[Message] if payload.get(name) is not None}
    return {name: getattr(row, name) for name in FIELDS[type(row)]}


def as_one_text(text: Any) -> str:
    """Return a text of `texts_of`, or its list with an item per line."""
    if isinstance(text, str):
        return text
    return "\n".join(one["fact"] if isinstance(one, dict) else one for one in text)


def address_of(row: Row) -> str:
    """Return the `rem://` address of a row."""
    if isinstance(row, Moment):
        return row.uri
    session = f"rem://sessions/{row.session.session_id}"
    return f"{session}/summary" if isinstance(row, Summary) else f"{session}/messages/{row.sequence}"


def set_text(row: Row, field: str, text: Any) -> None:
    """Store a text of a row. The vectors of a moment's former text are deleted."""
    if isinstance(row, Message):
        rewrite(row, (row.payload or {}) | {field: text})
        return
    setattr(row, field, text)
    if isinstance(row, Moment):
        row.save(update_fields=[field, "updated_at"])
        row.embeddings.all().delete()
    else:
        row.save(update_fields=[field])


def reworded(text: Any, rewordings: Iterable[Rewording]) -> Any:
    """Return a text of `texts_of` after rewordings. Items of a list that become empty are left out."""

    def change(one: str) -> str:
        lines = one.split("\n")
        for rewording in rewordings:
            lines = without(lines, rewording)
        return "\n".join(lines)

    rewordings = list(rewordings)
    if isinstance(text, str):
        return change(text)
    read = [(one, change(one["fact"] if isinstance(one, dict) else one)) for one in text]
    return [one | {"fact": new} if isinstance(one, dict) else new for one, new in read if new]


def of_sessions(user: int, sessions: Collection[int]) -> Iterator[Row]:
    """Yield the summaries and partition events of a person's sessions, oldest first."""
    yield from Summary.objects.completed().filter(user=user, session__in=sessions).select_related("session")
    events = Message.objects.partitions().filter(user_id=user, session__in=sessions).select_related("session")
    yield from events.order_by("session", "sequence", "pk")


def of_session_since(session: Session, at: datetime) -> Iterator[Row]:
    """Yield the rows that were written since a time from the turns of a session."""
    yield from session.moments.filter(created_at__gte=at)
    yield from Summary.objects.for_session(session).completed().filter(completed_at__gte=at)
    yield from session.messages.partitions().filter(user_id=session.user_id, arrived_at__gte=at)


def reword(rows: Iterable[Row], rewordings: Collection[Rewording]) -> None:
    """Store the texts of rows after rewordings."""
    for row in rows if rewordings else ():
        for field, text in texts_of(row).items():
            if (new := reworded(text, rewordings)) != text:
                set_text(row, field, new)


def rewordings_since(session: Session, at: datetime) -> list[Rewording]:
    """Return how texts of a session from before a time are reworded by corrections made, or undone, since then."""
    own = Correction.objects.filter(user=session.user_id)
    made = own.standing().filter(turns__session=session, created_at__gt=at).distinct()
    edits = [(one.created_at, Rewording(one.before, one.after, fact=one.before)) for one in made]
    turns = f"rem://sessions/{session.session_id}/messages/"
    for one in own.filter(kind=Correction.Kind.CORRECTED, undone_at__gt=at, created_at__lte=at):
        if one.undone_at and any(change["ref"].startswith(turns) for change in one.changes):
            edits.append((one.undone_at, undoing(one)))
    return [rewording for _at, rewording in sorted(edits, key=lambda edit: edit[0])]


def undoing(correction: Correction) -> Rewording:
    """Return the rewording that restores the original words."""
    return Rewording(correction.after, correction.before, fact=correction.after)
