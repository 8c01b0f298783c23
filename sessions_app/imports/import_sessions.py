"""`import_sessions`: add conversations from elsewhere as if they had been posted.

The process takes the messages that a reader in `sessions_app/imports` finds, one after another, and appends them in
batches, each as a whole or not at all. An import can be repeated: a message is recognized by its `external_id`, even
if it has been archived since. One that says something else than the message with its `external_id` is rejected.
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from django.db import transaction
from django.db.models.functions import MD5

from sessions_app.models import Message, Session, UserProfile
from sessions_app.transcript.append import BATCH_MAX, NewMessage, append

# Messages are held back so that those of one session are appended together. At this many messages, or this much text,
# all of them are appended.
PENDING_MAX = 5_000
PENDING_MAX_CHARS = 8_000_000
OTHER_TEXT = "Another message of its session has its external_id, and says something else."


@dataclass(frozen=True)
class Place:
    """The session that a message belongs to. Agent, source and title apply only if the session is new."""

    user_id: str
    session_id: str
    agent_id: str = ""
    source: str = ""
    title: str = ""


@dataclass(frozen=True)
class Record:
    """A message that was found, its position in the file (`where`), and its session. It has an `external_id`."""

    where: str
    place: Place
    message: NewMessage


@dataclass(frozen=True)
class Rejected:
    """A record that can't be imported: its position in the file and the reason, without its text."""

    where: str
    reason: str


@dataclass
class ImportCounts:
    """Counts of messages added, messages that were there already, and records rejected."""

    added: int = 0
    known: int = 0
    rejected: int = 0


def import_sessions(
    found: Iterable[Record | Rejected],
    *,
    application: int,
    dry_run: bool = False,
    on_rejected: Callable[[Rejected], None] = lambda _: None,
    on_batch: Callable[[ImportCounts], None] = lambda _: None,
) -> ImportCounts:
    """Append the records that a reader found, session by session, in the order of the file.

    Args:
        found: Records in the order of the file, read as they are needed.
        application: The primary key of the one whose people they are of.
        dry_run: Roll back each batch.
        on_rejected: Called with each record that is left out.
        on_batch: Called with the counts so far, after each batch.
    """
    imported = ImportCounts()

    def reject(rejected: Rejected) -> None:
        imported.rejected += 1
        on_rejected(rejected)

    for batch in _batches(found, reject):
        with transaction.atomic():
            added, doubtful = _append(batch, application)
            transaction.set_rollback(dry_run)
        imported.added += added
        imported.known += len(batch) - added - len(doubtful)
        for rejected in doubtful:
            reject(rejected)
        on_batch(imported)
    return imported


def _batches(found: Iterable[Record | Rejected], reject: Callable[[Rejected], None]) -> Iterable[list[Record]]:
    """Yield batches of one session each, however the file interleaves sessions. None exceeds the API's limit."""
    pending: dict[tuple[str, str], list[Record]] = {}
    count = chars = 0
    for record in found:
        if isinstance(record, Rejected):
            reject(record)
            continue
        session = record.place.user_id, record.place.session_id
        batch = pending.setdefault(session, [])
        batch.append(record)
        count, chars = count + 1, chars + _chars(record.message)
        if len(batch) == BATCH_MAX:
            yield pending.pop(session)
        if count >= PENDING_MAX or chars >= PENDING_MAX_CHARS:
            yield from pending.values()
            pending, count, chars = {}, 0, 0
    yield from pending.values()


def _chars(message: NewMessage) -> int:
    return len(message.content) + (len(json.dumps(message.payload)) if message.payload is not None else 0)


def _append(batch: list[Record], application: int) -> tuple[int, list[Rejected]]:
    """Append a batch; return how many messages were added, and the records that can't be."""
    place = batch[0].place
    user = UserProfile.objects.ensure(place.user_id, application)
    session = Session.objects.for_user(user).filter(session_id=place.session_id).first()
    batch, rejected = _agreeing(batch, _said(session, batch) if session else {})
    new, doubtful = _unknown(session, batch) if session else (batch, [])
    rejected += doubtful
    if not new:
        return 0, rejected
    messages = [record.message for record in new]
    appended = append(user, place.session_id, messages, agent_id=place.agent_id, source=place.source)
    added = sum(created for _, created in appended.messages)
    if added and place.title and not appended.session.title:
        appended.session.title = place.title
        appended.session.save(update_fields=["title"])
    return added, rejected


def _said(session: Session, batch: list[Record]) -> dict[str | None, str]:
    """Return the hashes of what the session's messages say, by `external_id`; archived ones have no text to compare."""
    ids = [record.message.external_id for record in batch]
    known = session.messages.filter(user_id=session.user_id, external_id__in=ids).exclude(kind=Message.Kind.ARCHIVED)
    return dict(known.values_list("external_id", MD5("content")))


def _agreeing(batch: list[Record], said: dict[str | None, str]) -> tuple[list[Record], list[Rejected]]:
    """Leave out the records that say something else than the message that has their `external_id` already."""
    said = dict(said)
    agreeing: list[Record] = []
    rejected: list[Rejected] = []
    for record in batch:
        text = hashlib.md5(record.message.content.encode(), usedforsecurity=False).hexdigest()
        if said.setdefault(record.message.external_id, text) == text:
            agreeing.append(record)
        else:
            rejected.append(Rejected(record.where, OTHER_TEXT))
    return agreeing, rejected


def _unknown(session: Session, batch: list[Record]) -> tuple[list[Record], list[Rejected]]:
    """Return the records that the session doesn't have, and those of which this can't be told.

    A repeated import locks nothing and reads no text. If retention has deleted the session's oldest turns, their ids
    are gone too, so those turns are recognized by their time.
    """
    ids = [record.message.external_id for record in batch]
    known = session.messages.filter(user_id=session.user_id, external_id__in=ids)  # archived ones too
    known_ids = set(known.values_list("external_id", flat=True))
    new = [record for record in batch if record.message.external_id not in known_ids]
    if not new or not session.kept_from_sequence:
        return new, []
    turns = session.messages.turns().filter(user_id=session.user_id)
    until = turns.order_by("sequence").values_list("created_at", flat=True).first() or session.last_activity_at
    reason = "It has no time: it may be one of its session's turns that were archived."
    doubtful = [Rejected(record.where, reason) for record in new if record.message.created_at is None]
    return [record for record in new if record.message.created_at and record.message.created_at > until], doubtful
