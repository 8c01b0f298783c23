"""`append`: add messages, update counters, and queue the jobs that become due, in one transaction.

The transaction locks the session's row first. So sequences have no gaps and counters are correct, even with concurrent
appends. Appends are idempotent: a message whose `external_id` exists is returned instead of added. If its content
differs from the existing message, all batches are rejected.

Texts are processed before the transaction. Processing a megabyte takes half a second, which is too long to hold a lock.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, Self, cast
from uuid import UUID

from django.db import connection, transaction
from django.dispatch import Signal
from django.utils import timezone

from sessions_app import lexemes
from sessions_app.database.sql import copy_rows, update_rows
from sessions_app.models import Message, Session, UserProfile
from sessions_app.models.message import said_hashes
from sessions_app.models.session import NamedSession, check_context_id
from sessions_app.refusals import Conflict
from sessions_app.text.length import estimate_tokens, weigh_tokens

BATCH_MAX = 500  # maximum messages of a request
WORDS_MAX_BYTES = 1_000_000  # maximum bytes of a batch's texts to index immediately; `index_words` indexes the rest
CONTEXT_ID = "context_id"  # metadata key of an answer, for the id of the context that the model received

# Sent before the transaction with `messages`, a list of `NewMessage`. A receiver processes the texts, and adds its
# results to the `notes` of each message. The stored message has the same notes.
messages_received = Signal()

# Sent in the transaction with `appended`, a list of sessions and the messages added to each. The sessions are locked,
# and their counters are up to date. A receiver returns the jobs that became due, as `DueJob`.
messages_appended = Signal()


class Words(NamedTuple):
    vector: str
    version: int


WORDS_LATER = Words("", 0)  # `index_words` computes them later


@dataclass(frozen=True)
class NewMessage:
    """A message from a client. `created_at` is an aware time, or None for the present."""

    role: str
    content: str = ""
    tool_name: str = ""
    name: str = ""
    payload: Any = None
    created_at: datetime | None = None
    external_id: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def tokens(self) -> int:
        return estimate_tokens(self.content, self.payload)

    @cached_property
    def words(self) -> Words:
        return Words(lexemes.vector(f"{self.name}\n{self.content}"), lexemes.VERSION)

    @cached_property
    def notes(self) -> dict[str, Any]:
        """The results of receivers of `messages_received`."""
        return {}

    def set_processed(self, tokens: int, vector: str) -> None:
        """Set the results of `estimate_tokens` and `lexemes.vector`."""
        vars(self).update(tokens=tokens, words=Words(vector, lexemes.VERSION))

    def with_fields(self, **fields: Any) -> Self:
        """Return a copy with changed fields. The fields must not be texts, because texts are not processed again."""
        changed = replace(self, **fields)
        vars(changed).update({name: vars(self)[name] for name in _CACHED_RESULTS if name in vars(self)})
        return changed


_CACHED_RESULTS = ("tokens", "words", "notes")


class IdTaken(Conflict):
    """The `external_id` already belongs to a message or item with different content."""

    code = "external_id_taken"


class DueJob(Protocol):
    """A job that a receiver of `messages_appended` returns."""

    @property
    def job_id(self) -> Any: ...
    @property
    def process(self) -> str: ...
    @property
    def status(self) -> str: ...


AppendedRow = tuple[Message, bool]  # a row, and whether this call adds it


@dataclass(frozen=True)
class Batch:
    """Messages for one session, in conversation order."""

    session: NamedSession  # the session is created if it doesn't exist
    messages: Sequence[NewMessage]
    title: str = ""  # title to set if the session has none


@dataclass(frozen=True)
class Appended:
    session: Session  # the session with updated counters
    messages: list[AppendedRow]  # in the given order; if there are several sessions, new rows have no primary key
    jobs: list[DueJob]  # the jobs that became due

    @property
    def added(self) -> int:
        return len(_new(self.messages))


def process_texts(messages: Sequence[NewMessage]) -> None:
    """Process the texts of messages. Call this before the transaction that stores them. Repeated calls have no effect.

    Compute missing words for at most `WORDS_MAX_BYTES` of text. `index_words` indexes the other messages within a
    minute.
    """
    unprocessed = [message for message in messages if "notes" not in vars(message)]
    for message in unprocessed:  # separate loops, because tokens and words compete for CPU caches
        message.tokens, message.notes  # noqa: B018 (cached from here on; `notes` marks a message as processed)
    indexed = 0
    for message in unprocessed:
        if "words" not in vars(message):
            indexed += len(message.content[: lexemes.MAX_CHARS].encode())
            vars(message)["words"] = message.words if indexed <= WORDS_MAX_BYTES else WORDS_LATER
    if unprocessed:
        messages_received.send(sender=NewMessage, messages=unprocessed)


def append(
    user: UserProfile,
    session_id: str,
    batch: Sequence[NewMessage],
    *,
    agent_id: str = "",
    source: str = "",
    context_id: UUID | None = None,
) -> Appended:
    """Append a batch, in conversation order, to a session. The session is created if it doesn't exist.

    A caller that opens the transaction itself must call `process_texts` before it.

    Args:
        agent_id, source: The values for a new session.
        context_id: The context that the model received. It is stored with the answer.

    Raises:
        UnknownContext: No such context was served for the session.
        IdTaken: An `external_id` already belongs to a message with other content. The error contains the position.
    """
    if context_id:
        check_context_id(context_id, user, session_id)
        batch = [_with_context_id(new, context_id) for new in batch]
    [appended] = append_many([Batch(NamedSession(user, session_id, agent_id, source), batch)])
    return appended


def append_many(batches: Sequence[Batch]) -> list[Appended]:
    """Append all batches in order, or none. Return the result for each batch. Raise IdTaken like `append`.

    The number of statements grows with the number of people, but not with the number of sessions.
    """
    process_texts([new for batch in batches for new in batch.messages])
    with transaction.atomic(savepoint=False):  # without a savepoint, an error rolls back the caller's transaction too
        locked = Session.objects.ensure_all_locked([batch.session for batch in batches])
        sessions = [locked[batch.session.name] for batch in batches]
        known = _existing(sessions, batches)
        rows = [_rows_of_batch(session, batch, known) for session, batch in zip(sessions, batches, strict=True)]
        jobs = _store([(session, _new(pairs)) for session, pairs in zip(sessions, rows, strict=True)])
    return [Appended(session, pairs, jobs) for session, pairs in zip(sessions, rows, strict=True)]


def _store(appended: Sequence[tuple[Session, list[Message]]]) -> list[DueJob]:
    added = [(session, new) for session, new in appended if new]
    if not added:
        return []
    _write(added)
    answers = messages_appended.send(sender=Session, appended=added)
    return [job for _receiver, due in answers for job in cast(Sequence[DueJob], due)]


def _rows_of_batch(session: Session, batch: Batch, known: Mapping[int, dict[str | None, Message]]) -> list[AppendedRow]:
    """Return the row for each message of a batch. Update the counters of the locked session."""
    rows = _rows_of_messages(session, batch.messages, known[session.pk])
    if added := _new(rows):
        _count(session, added)
        session.title = session.title or batch.title
    return rows


def _new(rows: Sequence[AppendedRow]) -> list[Message]:
    return [message for message, is_new in rows if is_new]


def _rows_of_messages(
    session: Session, batch: Sequence[NewMessage], known: dict[str | None, Message]
) -> list[AppendedRow]:
    """Return (row, whether to add it) for each message of a batch. Raise IdTaken like `append`.

    `known` maps `external_id` to the session's messages. This function adds the new messages to it.
    """
    rows: list[AppendedRow] = []
    added, now = 0, timezone.now()
    hashes = _compared_hashes(batch, known)
    for position, new in enumerate(batch):
        message = known.get(new.external_id) if new.external_id else None
        if message and not _has_same_content(message, new, hashes.get(position)):
            holder = f"message {message.sequence}, which has different content"
            raise IdTaken(f"messages[{position}]: its external_id already belongs to {holder}.")
        rows.append((message, False) if message else (_turn(session, new, added, now), True))
        if not message:
            added += 1
            if new.external_id:
                known[new.external_id] = rows[-1][0]
    return rows


def _with_context_id(new: NewMessage, context_id: UUID) -> NewMessage:
    if new.role != Message.Role.ASSISTANT:
        return new
    return new.with_fields(metadata=new.metadata | {CONTEXT_ID: str(context_id)})


def _existing(sessions: Sequence[Session], batches: Sequence[Batch]) -> dict[int, dict[str | None, Message]]:
    """Return the sessions' messages with the batches' external ids, keyed by session and external id."""
    names: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for session, batch in zip(sessions, batches, strict=True):
        if session.message_count:
            names[session.user_id] += [(session.pk, new.external_id) for new in batch.messages if new.external_id]
    known: dict[int, dict[str | None, Message]] = defaultdict(dict)
    for user_id, own in names.items():
        for message in Message.objects.with_external_ids(user_id, own):
            known[message.session_id][message.external_id] = message
    return known


def _compared_hashes(batch: Sequence[NewMessage], known: dict[str | None, Message]) -> dict[int, str]:
    """Return the hashes of new messages that must be compared with archived ones, keyed by position in the batch."""
    if all(message.said_hash is None for message in known.values()):
        return {}
    positions = [
        position
        for position, new in enumerate(batch)
        if (message := known.get(new.external_id)) and message.said_hash is not None
    ]
    hashes = said_hashes([(batch[position].content, batch[position].payload) for position in positions])
    return dict(zip(positions, hashes, strict=True))


def _has_same_content(message: Message, new: NewMessage, said_hash: str | None) -> bool:
    """Return whether two messages have the same content.

    Archived messages are compared by hash. `said_hash` is the hash of `new`; None if the archived message has no hash.
    """
    # Older versions did not store names, so a retry of a message may have a name that the stored message lacks.
    same = (message.role, message.tool_name) == (new.role, new.tool_name) and message.name in ("", new.name)
    if message.kind == Message.Kind.ARCHIVED:
        return same and (said_hash is None or bytes(message.said_hash or b"").hex() == said_hash)
    return same and message.content == new.content and message.payload == new.payload


def _turn(session: Session, new: NewMessage, position: int, now: datetime) -> Message:
    return Message.turn(
        session,
        sequence=session.last_sequence + 1 + position,
        role=new.role,
        content=new.content,
        tool_name=new.tool_name,
        name=new.name,
        payload=new.payload,
        tokens=new.tokens,
        search_vector=new.words.vector,
        search_version=new.words.version,
        external_id=new.external_id,
        created_at=new.created_at or now,
        arrived_at=now,
        metadata=new.metadata,
        notes=new.notes,
    )


def _count(session: Session, added: Sequence[Message]) -> None:
    """Update the counters of a session, which the caller saves."""
    tokens = sum(message.tokens for message in added)
    session.message_count += len(added)
    session.last_sequence += len(added)
    session.total_tokens += tokens
    session.live_tokens += tokens
    session.weighted_tokens += sum(weigh_tokens(message.role, message.tokens) for message in added)
    session.last_arrived_at = timezone.now()
    # A client's clock may be ahead, but no message is from the future.
    newest = min(session.last_arrived_at, max(message.created_at for message in added))
    session.last_activity_at = newest if session.message_count == len(added) else max(session.last_activity_at, newest)
    session.status = Session.Status.ACTIVE


# --- writing ---

# The columns of a session that an append writes.
COUNTERS = [
    "message_count",
    "last_sequence",
    "total_tokens",
    "live_tokens",
    "weighted_tokens",
    "last_activity_at",
    "last_arrived_at",
    "status",
    "title",
]
# The columns of a new turn. The others are null.
TURN_COLUMNS = (
    "session_id",
    "user_id",
    "sequence",
    "kind",
    "role",
    "tool_name",
    "name",
    "content",
    "tokens",
    "external_id",
    "created_at",
    "arrived_at",
    "search_vector",
    "search_version",
    "payload",
    "metadata",
)
_counters, _values = attrgetter(*COUNTERS, "pk"), attrgetter(*TURN_COLUMNS)
_ROW = f"({', '.join(['%s'] * len(TURN_COLUMNS))})"
# A single round trip stores a session's counters and its new turns. It is raw SQL, because the ORM would send two
# messages, and would take longer to build them than PostgreSQL takes to execute them.
_STORE_SQL = f"""
UPDATE sessions_app_session SET {", ".join(f"{column} = %s" for column in COUNTERS)} WHERE id = %s;
INSERT INTO sessions_app_message ({", ".join(TURN_COLUMNS)}) VALUES {{rows}} RETURNING id
"""  # noqa: S608 (names of our own columns)


def _write(added: Sequence[tuple[Session, Sequence[Message]]]) -> None:
    """Store the counters of sessions and their new turns, at least one for each session.

    The sessions must be locked and have their new counters. If there is only one session, set the primary keys of the
    turns.
    """
    sessions = list({session.pk: session for session, _ in added}.values())
    messages = [message for _, new in added for message in new]
    if len(sessions) == 1:
        _write_one(sessions[0], messages)
    else:
        copy_rows(messages)
        update_rows(sessions, COUNTERS)


def _write_one(session: Session, added: Sequence[Message]) -> None:
    parameters: list[Any] = [*_counters(session)]
    for message in added:
        *values, payload, metadata = _values(message)
        parameters += [*values, None if payload is None else json.dumps(payload), json.dumps(metadata)]
    with connection.cursor() as cursor:
        cursor.execute(_STORE_SQL.format(rows=", ".join([_ROW] * len(added))), parameters)
        while cursor.nextset():  # skip to the result with the primary keys
            pass
        for message, (pk,) in zip(added, cursor.fetchall(), strict=True):
            message.pk, message._state.adding = pk, False
