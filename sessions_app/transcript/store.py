"""Lock the sessions of an append, and store their counters and new turns. Create missing sessions.

For one session, a single round trip to the database stores everything. It is raw SQL, because the ORM would send two
messages, and would take longer to build them than PostgreSQL takes to execute them. For several sessions, a COPY and
an UPDATE store everything.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from django.db import connection

from sessions_app.database.sql import columns, copy_rows, insert_if_missing, read, update_rows
from sessions_app.models import Message, Session, UserProfile

# Locks sessions in a fixed order, to avoid deadlocks between transactions that lock several.
_LOCK_SQL = """
SELECT {columns} FROM sessions_app_session s
JOIN unnest(%s::bigint[], %s::text[]) AS wanted (user_id, session_id) USING (user_id, session_id)
ORDER BY s.user_id, s.session_id FOR NO KEY UPDATE OF s
"""

Name = tuple[int, str]  # primary key of the person, and the application's id of the session

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
_SQL = f"""
UPDATE sessions_app_session SET {", ".join(f"{column} = %s" for column in COUNTERS)} WHERE id = %s;
INSERT INTO sessions_app_message ({", ".join(TURN_COLUMNS)}) VALUES {{rows}} RETURNING id
"""  # noqa: S608 (names of our own columns)


@dataclass(frozen=True)
class NamedSession:
    """A session that may not exist yet."""

    user: UserProfile
    session_id: str  # the application's id
    agent_id: str = ""  # `agent_id` and `source` are for a new session
    source: str = ""

    @property
    def name(self) -> Name:
        return self.user.pk, self.session_id

    def new(self) -> Session:
        given = {field: value for field in ("agent_id", "source") if (value := getattr(self, field))}
        return Session(user=self.user, session_id=self.session_id, **given)


def locked_session(wanted: NamedSession) -> Session:
    """Return a session and lock it. Create it if it doesn't exist."""
    # Retry, because another transaction may create or delete the session between two statements.
    while (session := Session.objects.of_person(wanted.user, wanted.session_id, locked=True)) is None:
        session = wanted.new()
        if insert_if_missing(session):
            break
    return session


def locked_sessions(wanted: Sequence[NamedSession]) -> dict[Name, Session]:
    """Return sessions by name and lock them. Create those that don't exist."""
    by_name = {one.name: one for one in wanted}
    if len(by_name) == 1:  # saves a query if the session is new
        return {name: locked_session(one) for name, one in by_name.items()}
    found: dict[Name, Session] = {}
    while by_name.keys() - found.keys():  # repeats if a session was deleted between two statements
        # Create all missing sessions before locking any. Otherwise, two transactions that each lock a session and
        # create another could deadlock.
        _create_missing(by_name)
        found = _lock(by_name)
    return found


def _create_missing(wanted: Mapping[Name, NamedSession]) -> None:
    people, session_ids = zip(*wanted, strict=True)
    found = Session.objects.filter(user__in=people, session_id__in=session_ids)
    existing = set(found.values_list("user_id", "session_id"))
    if missing := [one.new() for name, one in sorted(wanted.items()) if name not in existing]:
        Session.objects.bulk_create(missing, ignore_conflicts=True)


def _lock(wanted: Mapping[Name, NamedSession]) -> dict[Name, Session]:
    names = [list(column) for column in zip(*wanted, strict=True)]
    found: dict[Name, Session] = {}
    for session, _ in read(Session, _LOCK_SQL.format(columns=columns(Session, "s")), names):
        name = session.user_id, session.session_id
        found[name], session.user = session, wanted[name].user
    return found


def store(added: Sequence[tuple[Session, Sequence[Message]]]) -> None:
    """Store the counters of sessions and their new turns, at least one for each session.

    The sessions must be locked and have their new counters. If there is only one session, set the primary keys of the
    turns.
    """
    sessions = list({session.pk: session for session, _ in added}.values())
    messages = [message for _, new in added for message in new]
    if len(sessions) == 1:
        _insert(sessions[0], messages)
    else:
        copy_rows(messages)
        update_rows(sessions, COUNTERS)


def _insert(session: Session, added: Sequence[Message]) -> None:
    parameters: list[Any] = [*_counters(session)]
    for message in added:
        *values, payload, metadata = _values(message)
        parameters += [*values, None if payload is None else json.dumps(payload), json.dumps(metadata)]
    with connection.cursor() as cursor:
        cursor.execute(_SQL.format(rows=", ".join([_ROW] * len(added))), parameters)
        while cursor.nextset():  # skip to the result with the primary keys
            pass
        for message, (pk,) in zip(added, cursor.fetchall(), strict=True):
            message.pk, message._state.adding = pk, False
