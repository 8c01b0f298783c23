"""`load`: what a client replays: the latest boundary and the turns after it, and pages over the whole transcript."""

from typing import NamedTuple

from django.db.models import F

from sessions_app.models import Message, Session

_COLUMNS = Message.columns("message")
# Two index reads of at most one and N rows, whatever the length of the session: the latest boundary from
# `message_partitions`, the newest turns after it from `message_turn_sequence_unique`, both read backwards.
# COALESCE stands within the subquery: beside the column it would be no leakproof condition, and under row security only
# such ones bound the stretch of an index that is read.
LIVE_SQL = f"""
WITH boundary AS (
    SELECT {_COLUMNS} FROM sessions_app_message message
    WHERE session_id = %(session)s AND user_id = %(user)s AND kind = 'partition'
    ORDER BY sequence DESC, id DESC LIMIT 1
), newest AS (
    SELECT {_COLUMNS} FROM sessions_app_message message
    WHERE session_id = %(session)s AND user_id = %(user)s AND kind = 'turn'
      AND retracted_at IS NULL AND sequence > (SELECT COALESCE(max(sequence), -1) FROM boundary)
    ORDER BY sequence DESC LIMIT %(limit)s
), live AS (SELECT * FROM boundary UNION ALL SELECT * FROM newest)
SELECT live.*, moment.key AS moment_key FROM live LEFT JOIN moments_app_moment moment ON moment.id = live.moment_id
ORDER BY sequence, kind
"""  # noqa: S608 (columns of our own)


class Loaded(NamedTuple):
    """Messages in conversation order, and whether the first of them is a partition event."""

    messages: list[Message]
    has_partition_event: bool


class Page(NamedTuple):
    """A stretch of the transcript in conversation order, and whether there is more in the direction asked for."""

    messages: list[Message]
    has_more: bool


def load_session_messages(session: Session, max_messages: int) -> Loaded:
    """The latest partition event, if any, and the newest turns after it that are not retracted, in one statement.

    Args:
        session: of the acting user.
        max_messages: most turns returned; the partition event comes on top.
    """
    parameters = {"session": session.pk, "user": session.user_id, "limit": max_messages}
    messages = list(Message.objects.raw(LIVE_SQL, parameters))
    return Loaded(messages, bool(messages) and messages[0].kind == Message.Kind.PARTITION)


def page_of_messages(session: Session, limit: int, *, after: int | None = None, before: int | None = None) -> Page:
    """A page of the whole transcript by sequence: the `limit` turns after `after`, or the last ones before `before`.

    Partition events that stand among the turns come with them and are not counted.
    """
    turns = session.messages.turns().filter(user_id=session.user_id)
    if before is not None:
        turns = turns.filter(sequence__lt=before).order_by("-sequence")
    else:
        turns = turns.filter(sequence__gt=-1 if after is None else after).order_by("sequence")
    rows = list(turns.annotate(moment_key=F("moment__key"))[: limit + 1])
    page, has_more = rows[:limit], len(rows) > limit
    if page:
        page += session.messages.partitions().filter(
            user_id=session.user_id, sequence__range=(min(m.sequence for m in page), max(m.sequence for m in page))
        )
    page.sort(key=lambda message: (message.sequence, message.kind == Message.Kind.PARTITION, message.pk))
    return Page(page, has_more)
