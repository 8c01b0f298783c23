"""`store`: write the counters of sessions and the rows of new turns, for an append.

One session needs one message to the database. Its SQL is written by hand, because the ORM would send two messages, and
would take longer to build them than PostgreSQL to execute them. Any number of sessions need one COPY and one UPDATE.
"""

import json
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from django.db import connection

from sessions_app.database.sql import copy_rows, update_rows
from sessions_app.models import Message, Session

# The columns of a session that an append writes.
COUNTED = [
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
WRITTEN = (
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
_counters, _values = attrgetter(*COUNTED, "pk"), attrgetter(*WRITTEN)
_ROW = f"({', '.join(['%s'] * len(WRITTEN))})"
_SQL = f"""
UPDATE sessions_app_session SET {", ".join(f"{column} = %s" for column in COUNTED)} WHERE id = %s;
INSERT INTO sessions_app_message ({", ".join(WRITTEN)}) VALUES {{rows}} RETURNING id
"""  # noqa: S608 (names of our own columns)


def store(added: Sequence[tuple[Session, Sequence[Message]]]) -> None:
    """Write the counters of sessions and their new turns.

    The turns get their primary keys if all are of one session.

    Args:
        added: One or more turns of each session. The session is locked and has its new counters.
    """
    sessions = list({session.pk: session for session, _ in added}.values())
    messages = [message for _, new in added for message in new]
    if len(sessions) == 1:
        _insert(sessions[0], messages)
    else:
        copy_rows(messages)
        update_rows(sessions, COUNTED)


def _insert(session: Session, added: Sequence[Message]) -> None:
    parameters: list[Any] = [*_counters(session)]
    for message in added:
        *values, payload, metadata = _values(message)
        parameters += [*values, None if payload is None else json.dumps(payload), json.dumps(metadata)]
    with connection.cursor() as cursor:
        cursor.execute(_SQL.format(rows=", ".join([_ROW] * len(added))), parameters)
        while cursor.nextset():  # skip to the primary keys
            pass
        for message, (pk,) in zip(added, cursor.fetchall(), strict=True):
            message.pk, message._state.adding = pk, False
