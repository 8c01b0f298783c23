"""SQL that copies rows of the former table of tasks, goals and problems to the table of statements.

A copy keeps the id, times, source and author. The first line of its text is the title. It is in the person's stream for
every agent, which `ensure_lists` creates.
"""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from moments_app.models.stream import USER_DEFAULTS

# The columns of a statement, from the columns of an entity `e` in the stream `list`. Other columns keep their defaults.
COLUMNS = {
    "stream_id": "list.id",
    "user_id": "e.user_id",
    "atom_id": "e.entity_id",
    "atom_type": "'fact'",
    "kind": "e.kind",
    "content": r"concat(regexp_replace(e.title, '[\r\n]+', ' ', 'g'), CASE WHEN e.body <> '' THEN E'\n' || e.body END)",
    "content_hash": "encode(sha256(e.entity_id::text::bytea), 'hex')",
    "state": "CASE e.status WHEN 'open' THEN 'active' ELSE 'ended' END",
    "value": "CASE e.status WHEN 'dropped' THEN 'dropped' ELSE '' END",
    "formed_at": "CASE e.status WHEN 'open' THEN e.updated_at ELSE e.created_at END",
    "created_at": "e.created_at",
    "due_at": "e.due_at",
    "valid_until": "CASE WHEN e.status <> 'open' THEN e.updated_at END",
    "ended_at": "CASE WHEN e.status <> 'open' THEN e.updated_at END",
    "ended_by": "CASE WHEN e.status = 'open' THEN '' ELSE e.written_by END",
    "source_session_id": "e.source_session_id",
    "written_by": "e.written_by",
    "external_id": "e.external_id",
}
REQUIRED = {
    "is_pinned": "false",
    "access_count": "0",
    "source_message_ids": "'{}'",
    "engine": "''",
}
WORDS = {"search_vector": "e.search_vector", "search_version": "0"}  # `index_words` counts the words again
_ALL = COLUMNS | REQUIRED | WORDS
FROM = """
FROM moments_app_entity e JOIN moments_app_memorystream list
    ON list.user_id = e.user_id AND list.stream_type = 'user' AND list.agent_id = ''
"""
COPY = f"""
INSERT INTO moments_app_memoryatom ({", ".join(_ALL)}) SELECT {", ".join(_ALL.values())} {FROM}
WHERE e.id = ANY (%s) ON CONFLICT DO NOTHING
"""


def ensure_lists(streams: Any, users: Iterable[int]) -> None:
    """Create the missing streams for every agent of the people with these primary keys.

    Args:
        streams: the manager of the historical model.
    """
    fields = {"stream_type": "user", "agent_id": "", **asdict(USER_DEFAULTS)}
    streams.bulk_create((streams.model(user_id=user, **fields) for user in users), ignore_conflicts=True)
