"""The baselines: the platform's work in PostgreSQL, done by psycopg alone on one connection.

They have the same queries, order, transactions and number of round trips, but no HTTP, checks or objects. As on the
platform, each query is planned again, because a plan prepared for a small table would be wrong for a large one.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from benchmarks.clients import WORDS, Step

KEY = """
SELECT k.id, k.name, k.prefix, k.secret_hash, k.user_id, k.scope, k.created_at, k.expires_at, k.revoked_at,
       k.last_used_at, u.*
FROM sessions_app_apikey k LEFT JOIN sessions_app_userprofile u ON k.user_id = u.id
WHERE k.prefix = %s ORDER BY k.id LIMIT 1
"""
ENTER = """
SELECT u.*, set_config('memory.user_pk', u.id::text, true), set_config('role', 'memory_request', true)
FROM sessions_app_userprofile u WHERE u.user_id = %s ORDER BY u.id LIMIT 1
"""
LOCKED_SESSION = """
SELECT * FROM sessions_app_session WHERE user_id = %s AND session_id = %s ORDER BY id LIMIT 1 FOR NO KEY UPDATE
"""
KNOWN = "SELECT * FROM sessions_app_message WHERE session_id = %s AND external_id = ANY(%s)"
INSERT = """
INSERT INTO sessions_app_message
    (session_id, user_id, sequence, kind, role, tool_name, content, payload, tokens, external_id, moment_id,
     created_at, metadata)
SELECT %s, %s, sequence, 'turn', 'user', '', content, NULL, tokens, external_id, NULL, now(), '{}'
FROM unnest(%s::bigint[], %s::text[], %s::int[], %s::text[]) AS added(sequence, content, tokens, external_id)
RETURNING id
"""
COUNT = """
UPDATE sessions_app_session SET status = 'active', message_count = message_count + %(count)s,
    total_tokens = total_tokens + %(tokens)s, last_sequence = last_sequence + %(count)s, last_activity_at = now(),
    live_tokens = live_tokens + %(tokens)s, weighted_tokens = weighted_tokens + %(tokens)s
WHERE id = %(session)s
"""
CLAIM = """
UPDATE moments_app_job SET status = 'processing', attempts = attempts + 1, started_at = now(), heartbeat_at = now()
WHERE id = %(job)s
"""
TURNS = "SELECT * FROM sessions_app_message WHERE session_id = %(session)s AND kind = 'turn' ORDER BY sequence"
LOCKS = (
    "SELECT * FROM sessions_app_session WHERE id = %(session)s FOR NO KEY UPDATE",
    "SELECT * FROM moments_app_job WHERE id = %(job)s FOR UPDATE",
    "SELECT * FROM sessions_app_userprofile WHERE id = %(user)s FOR NO KEY UPDATE",
)
MOMENT = """
INSERT INTO moments_app_moment
    (user_id, source_session_id, key, name, category, summary, detail, topic_tags, emotion_tags, present_persons,
     starts_at, ends_at, first_sequence, last_sequence, previous_moment_keys, job_id, engine, created_at,
     updated_at)
VALUES (%(user)s, %(session)s, %(key)s, %(name)s, 'session-compression', %(text)s, %(text)s, %(tags)s, %(tags)s, '{}',
        now(), now(), %(first)s, %(last)s, %(previous)s, %(job)s, 'raw', now(), now())
"""
HELD = """
UPDATE sessions_app_message
SET moment_id = (SELECT id FROM moments_app_moment WHERE user_id = %(user)s AND key = %(key)s)
WHERE session_id = %(session)s AND kind = 'turn' AND sequence BETWEEN %(first)s AND %(last)s
"""
AFTERWARDS = (
    """
    UPDATE sessions_app_userprofile SET summary = %(text)s, interests = %(tags)s, updated_at = now()
    WHERE id = %(user)s
    """,
    """
    INSERT INTO sessions_app_message
        (session_id, user_id, sequence, kind, role, tool_name, content, payload, tokens, created_at, metadata)
    VALUES (%(session)s, %(user)s, %(last)s, 'partition', 'tool', 'session_partition', %(text)s, %(payload)s, 27, now(),
            '{}')
    """,
    """
    UPDATE sessions_app_session SET last_moment_message_idx = %(last)s, live_from_sequence = %(last)s + 1,
        live_tokens = 0, built_message_count = message_count, built_total_tokens = total_tokens
    WHERE id = %(session)s
    """,
    "UPDATE moments_app_job SET status = 'completed', finished_at = now(), result = %(payload)s WHERE id = %(job)s",
    """
    INSERT INTO sessions_app_event (type, actor, user_pk, session_pk, payload, created_at)
    VALUES ('moments_built', 'job:raw', %(user)s, %(session)s, %(payload)s, now())
    """,
)


# Deletes the rows that the benchmark of erasures creates for a person.
ERASE = [
    f"DELETE FROM {table} WHERE user_id = %s"
    for table in ("sessions_app_message", "moments_app_moment", "moments_app_memoryatom", "moments_app_memorystream")
] + ["DELETE FROM sessions_app_session WHERE user_id = %s", "DELETE FROM sessions_app_userprofile WHERE id = %s"]


class Raw:
    """A connection that does the platform's work."""

    def __init__(self, conninfo: str, key: str) -> None:
        self._cursor = psycopg.connect(conninfo, autocommit=True, prepare_threshold=None).cursor()
        self._prefix = key.split("_")[1]

    def append(self, user_id: str, session_id: str, external_ids: list[str]) -> None:
        """Append messages with eight queries."""
        count, tokens = len(external_ids), -(-len(WORDS) // 4)
        self._one(KEY, [self._prefix])
        with self._transaction():
            user = self._one(ENTER, [user_id])[0]
            session, last_sequence = self._locked_session(user, session_id)
            self._cursor.execute(KNOWN, [session, external_ids]).fetchall()
            sequences = list(range(last_sequence + 1, last_sequence + 1 + count))
            rows = [sequences, [WORDS] * count, [tokens] * count, external_ids]
            self._cursor.execute(INSERT, [session, user, *rows]).fetchall()
            self._cursor.execute(COUNT, {"count": count, "tokens": count * tokens, "session": session})

    def build(self, *, job: int, user: int, session: int, turns: int, turns_each: int) -> None:
        """Do the claim and commit of a moment build, with one `executemany` for moments and one for turns."""
        ids = {"job": job, "user": user, "session": session}
        rows: list[dict[str, Any]] = []
        for first in range(0, turns, turns_each):
            names = {"key": f"episode-{first}-raw", "name": f"episode-{first}", "text": WORDS * 3, "tags": ["a", "b"]}
            previous = [row["key"] for row in rows[:-4:-1]]
            rows.append(ids | names | {"first": first, "last": first + turns_each - 1, "previous": previous})
        with self._transaction():
            self._cursor.execute(CLAIM, ids)
            self._cursor.execute(TURNS, ids).fetchall()
        with self._transaction():
            for statement in LOCKS:
                self._cursor.execute(statement, ids).fetchall()
            self._cursor.executemany(MOMENT, rows)
            self._cursor.executemany(HELD, rows)
            for statement in AFTERWARDS:
                self._cursor.execute(statement, rows[-1] | {"payload": Jsonb({"keys": [row["key"] for row in rows]})})

    def erase(self, user: int) -> None:
        """Delete a person's rows, table by table. The commit checks the foreign keys."""
        with self._transaction():
            for statement in ERASE:
                self._cursor.execute(statement, [user])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._cursor.execute("BEGIN")
        yield
        self._cursor.execute("COMMIT")

    def _locked_session(self, user: int, session_id: str) -> tuple[int, int]:
        row = self._one(LOCKED_SESSION, [user, session_id])
        names = [column.name for column in self._cursor.description or ()]
        return row[names.index("id")], row[names.index("last_sequence")]

    def _one(self, statement: str, parameters: list[Any]) -> tuple[Any, ...]:
        row = self._cursor.execute(statement, parameters).fetchone()
        assert row is not None
        return row


@dataclass(frozen=True)
class RawAppend:
    """The work of `HttpAppend` without the platform. Its people and sessions already exist."""

    conninfo: str
    key: str
    batch: int = 1

    def connected(self, client: int) -> Step:
        raw = Raw(self.conninfo, self.key)
        names = f"raw-{client}", f"raw-{client}-of-{self.batch}"

        def append() -> None:
            now = time.monotonic_ns()
            raw.append(*names, [f"m{number}-{now}" for number in range(self.batch)])

        return append
