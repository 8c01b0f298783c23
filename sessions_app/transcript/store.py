"""`store`: what an append writes, by one message to the database: the session's counters and the rows of the new turns.

By hand, as each append does it: the ORM takes two messages, and longer to write them down than PostgreSQL to carry them
out.
"""

import json
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from django.db import connection

from sessions_app.models import Message, Session

# The columns of a session that change with each append.
COUNTED = [
    "message_count",
    "last_sequence",
    "total_tokens",
    "live_tokens",
    "weighted_tokens",
    "last_activity_at",
    "last_arrived_at",
    "status",
]
# The columns of a new turn; the others are null.
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


def store(session: Session, added: Sequence[Message]) -> None:
    """Write a session's counters and its new turns, which get their primary keys.

    Args:
        session: locked, counters up to date.
        added: one or more.
    """
    parameters: list[Any] = [*_counters(session)]
    for message in added:
        *values, payload, metadata = _values(message)
        parameters += [*values, None if payload is None else json.dumps(payload), json.dumps(metadata)]
    with connection.cursor() as cursor:
        cursor.execute(_SQL.format(rows=", ".join([_ROW] * len(added))), parameters)
        while cursor.nextset():  # to the primary keys
            pass
        for message, (pk,) in zip(added, cursor.fetchall(), strict=True):
            message.pk, message._state.adding = pk, False
