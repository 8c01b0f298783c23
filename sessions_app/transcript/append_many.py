"""`append_many`: append batches to many sessions in one transaction, by as many statements as one batch takes.

What `append` promises holds of each batch, and of all together: they are there completely or not at all. It is for
imports, where a statement for each session would cost more than what is said in it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from django.db import transaction

from sessions_app.copy_rows import copy_rows, update_rows
from sessions_app.models import Message, Session, UserProfile
from sessions_app.rows import columns, read
from sessions_app.transcript.append import NewMessage, count, placed_in, request_due
from sessions_app.transcript.store import COUNTED

# In one order, so that two who lock several never wait for each other.
_LOCK_SQL = """
SELECT {columns} FROM sessions_app_session s
JOIN unnest(%s::bigint[], %s::text[]) AS wanted (user_id, session_id) USING (user_id, session_id)
ORDER BY s.user_id, s.session_id FOR NO KEY UPDATE OF s
"""

Name = tuple[int, str]  # primary key of the person, and the application's id of the session


@dataclass(frozen=True)
class Batch:
    """Messages of one session, in conversation order.

    Args:
        user: the owner of the session.
        session_id: the application's id of it.
        messages: in conversation order.
        agent_id, source, title: those of a new session; an existing one keeps its own, but a blank title.
    """

    user: UserProfile
    session_id: str
    messages: Sequence[NewMessage]
    agent_id: str = ""
    source: str = ""
    title: str = ""

    @property
    def name(self) -> Name:
        return self.user.pk, self.session_id


@transaction.atomic(savepoint=False)
def append_many(batches: Sequence[Batch]) -> list[int]:
    """Append batches, one after the other, to sessions that are created if they don't exist.

    Returns:
        For each batch, how many messages were added.

    Raises:
        IdTaken: a message has the `external_id` of one that says something else.
        LimitReached: it is more than may be stored today; the caller rolls back.
    """
    if not batches:
        return []
    sessions = _locked_sessions({batch.name: batch for batch in batches})
    known = _known(sessions, batches)
    added = [(session := sessions[batch.name], _place(session, batch, known[session.pk])) for batch in batches]
    if messages := [message for _, new in added for message in new]:
        copy_rows(messages)
        update_rows(list({session.pk: session for session, new in added if new}.values()), [*COUNTED, "title"])
        request_due(list(filter(itemgetter(1), added)))
    return [len(new) for _, new in added]


def _place(session: Session, batch: Batch, known: dict[str | None, Message]) -> list[Message]:
    """Return the messages of a batch that are new, counted in their session, and known from here on."""
    new = [message for message, is_new in placed_in(session, batch.messages, known) if is_new]
    if new:
        count(session, new)
        session.title = session.title or batch.title
    return new


def _locked_sessions(first: Mapping[Name, Batch]) -> dict[Name, Session]:
    """Return sessions by name, locked until the transaction ends. Those that don't exist are created.

    Args:
        first: for each the batch that it would begin with.
    """
    found: dict[Name, Session] = {}
    while first.keys() - found.keys():  # again when one was deleted between two statements
        # Created before any is locked, and both in order: else two who each hold what the other wants would wait.
        there = set(_there(first))
        if missing := [_new_session(batch) for name, batch in sorted(first.items()) if name not in there]:
            Session.objects.bulk_create(missing, ignore_conflicts=True)
        found = _lock(first)
    return found


def _there(first: Mapping[Name, Batch]) -> Iterable[Name]:
    people, session_ids = zip(*first, strict=True)
    return Session.objects.filter(user__in=people, session_id__in=session_ids).values_list("user_id", "session_id")


def _lock(first: Mapping[Name, Batch]) -> dict[Name, Session]:
    sql = _LOCK_SQL.format(columns=columns(Session, "s"))
    names = [list(column) for column in zip(*first, strict=True)]
    found: dict[Name, Session] = {}
    for session, _ in read(Session, sql, names):
        name = session.user_id, session.session_id
        found[name], session.user = session, first[name].user
    return found


def _new_session(batch: Batch) -> Session:
    given = {name: value for name in ("agent_id", "source") if (value := getattr(batch, name))}
    return Session(user=batch.user, session_id=batch.session_id, **given)


def _known(sessions: Mapping[Name, Session], batches: Sequence[Batch]) -> dict[int, dict[str | None, Message]]:
    """Return the messages that have one of the batches' external ids, by the primary key of their session."""
    ids = [
        (session.user_id, session.pk, new.external_id)
        for batch in batches
        if (session := sessions[batch.name]).message_count
        for new in batch.messages
        if new.external_id
    ]
    found: dict[int, dict[str | None, Message]] = defaultdict(dict)
    for message in Message.objects.sent_as(ids):
        found[message.session_id][message.external_id] = message
    return found
