"""`load`: read the latest boundary and the turns after it, to replay them to a model; or read a page of the transcript.

If there are more turns than the limit, the result contains the range of the omitted turns, which can be read as a page.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple, Self

from django.conf import settings
from django.db.models import Count, F, Min, QuerySet

from sessions_app.database.sql import microseconds_of, prepared_cursor, time_of
from sessions_app.models import Message, Session

_COLUMNS = """sequence, kind, role, content, tool_name, name, payload, tokens, created_at, external_id, moment_id,
    retracted_at, metadata"""
# Two backward index scans find the latest boundary (`message_partitions`) and the N newest turns after it
# (`message_turn_sequence_unique`). Their cost doesn't depend on the length of the session. COALESCE is inside the
# subquery, because outside of it, the expression would not be leakproof, and with row-level security, only leakproof
# conditions can limit an index scan. The name of the moments' table comes from the foreign key, because another app
# defines the table.
LIVE_SQL = f"""
WITH boundary AS (
    SELECT {_COLUMNS} FROM sessions_app_message
    WHERE session_id = %(session)s AND user_id = %(user)s AND kind = 'partition'
    ORDER BY sequence DESC, id DESC LIMIT 1
), newest AS (
    SELECT {_COLUMNS} FROM sessions_app_message
    WHERE session_id = %(session)s AND user_id = %(user)s AND kind = 'turn'
      AND retracted_at IS NULL AND sequence > (SELECT COALESCE(max(sequence), -1) FROM boundary)
    ORDER BY sequence DESC LIMIT %(limit)s
), live AS (SELECT * FROM boundary UNION ALL SELECT * FROM newest)
SELECT live.sequence, live.kind, live.role, live.content, live.tool_name, live.name, live.payload, live.tokens,
    {microseconds_of("live.created_at")}, live.external_id, moment.key, {microseconds_of("live.retracted_at")},
    live.metadata
FROM live LEFT JOIN {Message.moment_table()} moment ON moment.id = live.moment_id
ORDER BY live.sequence, live.kind
"""  # noqa: S608 (columns of our own)


@dataclass(frozen=True)
class Omitted:
    """The turns omitted before the returned ones: their number, and the first and last sequence number."""

    count: int
    from_sequence: int
    to_sequence: int


class LoadedMessage(NamedTuple):
    """A turn or a partition event as returned to clients, with the fields of `Message` and the key of its moment."""

    sequence: int
    kind: str
    role: str
    content: str
    tool_name: str
    name: str
    payload: Any
    tokens: int
    created_at: datetime
    external_id: str | None
    moment_key: str | None
    retracted_at: datetime | None
    metadata: Any

    @classmethod
    def from_message(cls, message: Message) -> Self:
        """Convert a message. The key of its moment is included if it was loaded."""
        return cls._make(getattr(message, name, None) for name in cls._fields)

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Self:
        message = cls._make(row)
        payload, retracted, metadata = message.payload, message.retracted_at, message.metadata
        return message._replace(
            payload=None if payload is None else json.loads(payload),
            created_at=time_of(row[8]),
            retracted_at=None if retracted is None else time_of(row[11]),
            metadata={} if metadata == "{}" else json.loads(metadata),
        )


class LoadedMessages(NamedTuple):
    """Messages in conversation order. The first may be a partition event. Turns after it may be omitted."""

    messages: list[LoadedMessage]
    has_partition_event: bool
    omitted: Omitted | None


class Page(NamedTuple):
    """A range of the transcript in conversation order, and whether there is more in the requested direction."""

    messages: list[Message]
    has_more: bool


def load_session_messages(session: Session, max_messages: int | None = None) -> LoadedMessages:
    """Load the latest partition event, if any, and the newest unretracted turns after it. Uses one statement.

    The session must belong to the acting user. `max_messages` is the maximum number of turns. The default is the limit
    in the settings, but at least the number of turns that a build leaves live.
    """
    limit = settings.MOMENT_BUILDER.reload_limit if max_messages is None else max_messages
    parameters = {"session": session.pk, "user": session.user_id, "limit": limit + 1}
    with prepared_cursor() as cursor:
        cursor.execute(LIVE_SQL, parameters)
        messages = [LoadedMessage.from_row(row) for row in cursor.fetchall()]
    boundary = messages[:1] if messages and messages[0].kind == Message.Kind.PARTITION else []
    turns = messages[len(boundary) :]
    if len(turns) <= limit:
        return LoadedMessages(messages, bool(boundary), None)
    first = boundary[0].sequence + 1 if boundary else session.kept_from_sequence
    return LoadedMessages(boundary + turns[1:], bool(boundary), omitted_turns(session, first, turns[0].sequence))


def omitted_turns(session: Session, first: int, last: int) -> Omitted:
    """Return the number and range of unretracted turns from `first` to `last`, inclusive, which were omitted."""
    if not session.retraction_count:  # without retractions, sequence numbers have no gaps
        return Omitted(last - first + 1, first, last)
    turns = session.messages.turns().unretracted().filter(user_id=session.user_id, sequence__range=(first, last))
    found = turns.aggregate(count=Count("pk"), first=Min("sequence"))
    return Omitted(found["count"], found["first"], last)


def page_of_messages(
    session: Session,
    limit: int,
    *,
    after: int | None = None,
    before: int | None = None,
    kinds: Collection[str] = (Message.Kind.TURN,),
) -> Page:
    """Return a page of the transcript: the first `limit` turns after `after`, or the last ones before `before`.

    `after` and `before` are sequence numbers. The page includes the partition events between these turns, without
    counting them. Turns of the kind ARCHIVED have no text.
    """
    first = -1 if after is None else after
    nearest = _turns_after(session, first) if before is None else _turns_before(session, before)
    turns = nearest.annotate(moment_key=F("moment__key"))
    rows: list[Message] = [row for kind in kinds for row in turns.filter(kind=kind)[: limit + 1]]
    rows.sort(key=attrgetter("sequence"), reverse=before is not None)
    page, has_more = rows[:limit], len(rows) > limit
    if page:
        page += session.messages.partitions().filter(
            user_id=session.user_id, sequence__range=(min(m.sequence for m in page), max(m.sequence for m in page))
        )
    page.sort(key=lambda message: (message.sequence, message.kind == Message.Kind.PARTITION, message.pk))
    return Page(page, has_more)


def turns_around(session: Session, sequence: int, number: int) -> list[Message]:
    """Return up to `number` turns on each side of a position, in conversation order. Archived turns have no text."""
    sides = (_turns_before(session, sequence + 1), _turns_after(session, sequence))
    near = [side.filter(kind=kind)[:number] for side in sides for kind in turn_kinds(session)]
    return sorted(near[0].union(*near[1:], all=True), key=attrgetter("sequence"))


def turn_kinds(session: Session) -> Sequence[str]:
    """Return the kinds of turns that a session may have. Each kind has its own index, so each is read separately."""
    # If one month was restored, other months may still be archived.
    has_archived = session.kept_from_sequence > 0 or session.restored_at is not None
    return (Message.Kind.TURN, Message.Kind.ARCHIVED) if has_archived else (Message.Kind.TURN,)


def _turns_before(session: Session, sequence: int) -> QuerySet[Message]:
    return session.messages.filter(user_id=session.user_id, sequence__lt=sequence).order_by("-sequence")


def _turns_after(session: Session, sequence: int) -> QuerySet[Message]:
    return session.messages.filter(user_id=session.user_id, sequence__gt=sequence).order_by("sequence")
