"""`import_sessions`: add conversations from another system as if they had been posted.

Readers in `sessions_app/imports` yield messages, which are appended in batches. A transaction contains many batches. A
signal passes facts without messages (`Statement`) to the memory app. An import can be repeated. Existing messages are
recognized by their `external_id`, even archived ones. A message is rejected if the existing message with its
`external_id` has different content.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import TextField
from django.db.models.expressions import RawSQL

from sessions_app.imports.text_process import Text, TextProcess
from sessions_app.models import Message, Session, UserProfile
from sessions_app.models.message import SAID_HASH_SQL, said_hashes
from sessions_app.models.session import NamedSession
from sessions_app.signals import statements_imported
from sessions_app.transcript.append import BATCH_MAX, Batch, NewMessage, append_many, process_texts

# Messages are buffered to append many messages of a session at once, and many sessions in one transaction. The size of
# the buffer is its number of characters, plus `MESSAGE_SIZE` per message.
PORTION_SIZE = 2_000_000
MESSAGE_SIZE = 1_000
STATEMENTS_MAX = 1_000  # maximum facts per transaction
_KNOWN_HASH_SQL = f"CASE kind WHEN 'archived' THEN encode(said_hash, 'hex') ELSE {SAID_HASH_SQL} END"
CONFLICT = (
    "Another message in the session has this external_id but different content. A message without an external_id is "
    "identified by its position, so the file must contain the session from its start."
)


@dataclass(frozen=True)
class SessionRef:
    """The session of a message. Agent, source and title apply only if the session is new."""

    user_id: str
    session_id: str
    agent_id: str = ""
    source: str = ""
    title: str = ""


@dataclass(frozen=True)
class Record:
    """A message to import, which has an `external_id`. `where` is its position in the file."""

    where: str
    session: SessionRef
    message: NewMessage


@dataclass(frozen=True)
class Statement:
    """A fact about a person that another system stored."""

    where: str
    source: str  # the system's name, with the prefix `import:`
    user_id: str
    agent_id: str  # blank for the default agent
    text: str
    said_at: datetime | None = None  # when the system learned it
    valid_from: datetime | None = None  # when it became true; None if unknown
    valid_until: datetime | None = None
    ended_at: datetime | None = None  # when the system learned that it was no longer true


@dataclass(frozen=True)
class RejectedRecord:
    """A record that can't be imported: its position in the file and the reason, but not its text."""

    where: str
    reason: str


class Content(NamedTuple):
    """The values by which two messages are compared."""

    role: str
    tool_name: str
    said_hash: str


ContentById = dict[str | None, Content | None]  # a session's messages by `external_id`; None if the content is unknown


@dataclass
class ImportCounts:
    """Counts of new and existing messages and facts, and of rejected records."""

    added: int = 0
    known: int = 0
    facts: int = 0
    known_facts: int = 0
    rejected: int = 0


def import_sessions(
    found: Iterable[Record | Statement | RejectedRecord],
    *,
    application: int,
    dry_run: bool = False,
    on_rejected: Callable[[RejectedRecord], None] = lambda _: None,
    on_batch: Callable[[ImportCounts], None] = lambda _: None,
) -> ImportCounts:
    """Append the records of a reader, in the order of the file. The records are read lazily.

    `application` is the primary key of the people's application. `dry_run`: roll back each batch. `on_batch` is
    called after each batch, with the counts so far.
    """
    imported = ImportCounts()

    def reject(rejected: RejectedRecord) -> None:
        imported.rejected += 1
        on_rejected(rejected)

    def import_statements(statements: list[Statement]) -> None:
        with transaction.atomic():
            added = _import_statements(statements, application)
            transaction.set_rollback(dry_run)
        imported.facts += added
        imported.known_facts += len(statements) - added
        on_batch(imported)

    portions = _portions(_messages(found, import_statements), reject)
    with TextProcess() as process:
        for portion in _processed(portions, application, process):
            process_texts(portion.new_messages)
            with transaction.atomic():
                appended = iter(_append([new for new, _ in portion.checked if new], application))
                transaction.set_rollback(dry_run)
            for batch, (new, rejected) in zip(portion.batches, portion.checked, strict=True):
                added = next(appended) if new else 0
                imported.added += added
                imported.known += len(batch) - added - len(rejected)
                for one in rejected:
                    reject(one)
                on_batch(imported)
    return imported


def _messages(
    found: Iterable[Record | Statement | RejectedRecord], import_statements: Callable[[list[Statement]], None]
) -> Iterable[Record | RejectedRecord]:
    """Yield the messages and rejected records. Pass statements to `import_statements`, many at a time."""
    waiting: list[Statement] = []
    for one in found:
        if not isinstance(one, Statement):
            yield one
            continue
        waiting.append(one)
        if len(waiting) == STATEMENTS_MAX:
            import_statements(waiting)
            waiting = []
    if waiting:
        import_statements(waiting)


def _import_statements(statements: list[Statement], application: int) -> int:
    people = UserProfile.objects.ensure_protected({one.user_id for one in statements}, application)
    answers: list[Any] = statements_imported.send(sender=None, people=people, statements=statements)
    return sum(added for _receiver, added in answers)


def _portions(
    found: Iterable[Record | RejectedRecord], reject: Callable[[RejectedRecord], None]
) -> Iterator[list[list[Record]]]:
    """Yield portions of batches. A portion of `PORTION_SIZE` ends before the next session.

    A portion ends within a session if it reaches twice `PORTION_SIZE`, for example because the file interleaves
    sessions.
    """
    pending: dict[tuple[str, str], list[Record]] = {}
    size = 0
    for record in found:
        if isinstance(record, RejectedRecord):
            reject(record)
            continue
        session = record.session.user_id, record.session.session_id
        if size >= (2 * PORTION_SIZE if session in pending else PORTION_SIZE):
            yield _batches(pending.values())
            pending, size = {}, 0
        pending.setdefault(session, []).append(record)
        size += MESSAGE_SIZE + _chars(record.message)
    if pending:
        yield _batches(pending.values())


def _batches(sessions: Iterable[list[Record]]) -> list[list[Record]]:
    """Return batches of one session each, within the API's limit."""
    return [records[n : n + BATCH_MAX] for records in sessions for n in range(0, len(records), BATCH_MAX)]


def _chars(message: NewMessage) -> int:
    others = [json.dumps(part) for part in (message.payload, message.metadata) if part]
    return len(message.content) + sum(map(len, others))


@dataclass(frozen=True)
class _Portion:
    """Batches to append in one transaction, and for each its missing and its rejected records."""

    batches: list[list[Record]]
    checked: list[tuple[list[Record], list[RejectedRecord]]]

    @cached_property
    def new_messages(self) -> list[NewMessage]:
        return [record.message for new, _ in self.checked for record in new]


def _processed(portions: Iterable[list[list[Record]]], application: int, process: TextProcess) -> Iterator[_Portion]:
    """Yield the portions with processed texts. While the caller stores one, the texts of the next are processed.

    If a portion continues a session of the previous one, the caller stores the previous one first, because messages are
    compared with the stored ones.
    """
    waiting: _Portion | None = None
    for batches in portions:
        if waiting and not _sessions(waiting.batches).isdisjoint(_sessions(batches)):
            yield _with_results(waiting, process)
            waiting = None
        portion = _Portion(batches, _checked(batches, application))
        finished = waiting and _with_results(waiting, process)
        process.begin([Text(new.name, new.content, new.payload) for new in portion.new_messages])
        if finished:
            yield finished
        waiting = portion
    if waiting:
        yield _with_results(waiting, process)


def _sessions(batches: list[list[Record]]) -> set[tuple[str, str]]:
    return {(batch[0].session.user_id, batch[0].session.session_id) for batch in batches}


def _with_results(portion: _Portion, process: TextProcess) -> _Portion:
    for message, processed in zip(portion.new_messages, process.finish(), strict=True):
        message.set_processed(*processed)
    return portion


def _checked(portion: list[list[Record]], application: int) -> list[tuple[list[Record], list[RejectedRecord]]]:
    """Return, for each batch, the records that are missing in its session, and the rejected ones."""
    names = {batch[0].session.user_id for batch in portion}
    known = _StoredMessages(list(UserProfile.objects.filter(application=application, user_id__in=names)), portion)
    hashes = iter(said_hashes([(one.message.content, one.message.payload) for batch in portion for one in batch]))
    return [known.checked(batch, list(islice(hashes, len(batch)))) for batch in portion]


def _append(batches: list[list[Record]], application: int) -> list[int]:
    users = UserProfile.objects.ensure_protected({batch[0].session.user_id for batch in batches}, application)
    return [appended.added for appended in append_many([_to_append(users, batch) for batch in batches])]


def _to_append(users: Mapping[str, UserProfile], new: list[Record]) -> Batch:
    ref = new[0].session
    session = NamedSession(users[ref.user_id], ref.session_id, ref.agent_id, ref.source)
    return Batch(session, [record.message for record in new], ref.title)


class _StoredMessages:
    """The stored messages of the records' sessions. Reads no texts and locks no rows, so repeated imports are cheap."""

    def __init__(self, users: Sequence[UserProfile], portion: list[list[Record]]) -> None:
        wanted = {batch[0].session.session_id for batch in portion}
        names = {user.pk: user.user_id for user in users}
        sessions = Session.objects.filter(user__in=users, session_id__in=wanted)
        self._sessions = {(names[session.user_id], session.session_id): session for session in sessions}
        sent: dict[int, list[tuple[int, str]]] = defaultdict(list)
        for batch in portion:
            if session := self._session_of(batch):
                sent[session.user_id] += [(session.pk, record.message.external_id or "") for record in batch]
        self._stored: dict[int | None, ContentById] = defaultdict(dict)
        for user_id, own in sent.items():
            for pk, external_id, role, tool_name, said_hash in _by_external_ids(user_id, own):
                # Messages that older versions archived have no hash, and can't be compared.
                self._stored[pk][external_id] = Content(role, tool_name, said_hash) if said_hash else None
        self._said: dict[tuple[str, str], ContentById] = {}

    def _session_of(self, batch: list[Record]) -> Session | None:
        ref = batch[0].session
        return self._sessions.get((ref.user_id, ref.session_id))

    def checked(self, batch: list[Record], hashes: list[str]) -> tuple[list[Record], list[RejectedRecord]]:
        """Return the records of a batch that are missing in its session, and the rejected ones."""
        ref, session = batch[0].session, self._session_of(batch)
        stored = self._stored[session.pk] if session else {}
        said = self._said.setdefault((ref.user_id, ref.session_id), dict(stored))
        agreeing, rejected = _without_conflicts(batch, hashes, said)
        new = [record for record in agreeing if record.message.external_id not in stored]
        if new and session and session.kept_from_sequence:
            new, doubtful = _not_archived(session, new)
            rejected += doubtful
        return new, rejected


def _by_external_ids(user_id: int, names: list[tuple[int, str]]) -> Iterable[tuple[int, str, str, str, str | None]]:
    said_hash = RawSQL(_KNOWN_HASH_SQL, [], TextField())  # noqa: S611 (of our own columns)
    return Message.objects.with_external_ids(user_id, names).values_list(
        "session_id", "external_id", "role", "tool_name", said_hash
    )


def _without_conflicts(
    batch: list[Record], hashes: list[str], known: ContentById
) -> tuple[list[Record], list[RejectedRecord]]:
    """Return the records to import, and those whose `external_id` belongs to a message with different content.

    `known` maps `external_id` to the session's messages. This function adds the records of the batch to it.
    """
    agreeing: list[Record] = []
    rejected: list[RejectedRecord] = []
    for record, said_hash in zip(batch, hashes, strict=True):
        said = Content(record.message.role, record.message.tool_name, said_hash)
        if known.setdefault(record.message.external_id, said) in (None, said):
            agreeing.append(record)
        else:
            rejected.append(RejectedRecord(record.where, CONFLICT))
    return agreeing, rejected


def _not_archived(session: Session, new: list[Record]) -> tuple[list[Record], list[RejectedRecord]]:
    """Return the records that are newer than the archived turns. Reject those without a time.

    The `external_id` of an archived turn may no longer be stored, so archived turns are recognized by time.
    """
    turns = session.messages.turns().filter(user_id=session.user_id)
    until = turns.order_by("sequence").values_list("created_at", flat=True).first() or session.last_activity_at
    reason = "It has no time, so it may be a copy of an archived turn of the session."
    doubtful = [RejectedRecord(record.where, reason) for record in new if record.message.created_at is None]
    return [record for record in new if record.message.created_at and record.message.created_at > until], doubtful
