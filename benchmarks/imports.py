"""Benchmark of importing a large export with the command, in its own process."""

import json
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.figures import Figure
from benchmarks.site import Site, run_command
from sessions_app.models import Message, UserProfile

TITLE = "Import"
NOTE = (
    "A generated Claude export with conversations of 4 to 120 messages of 10 to 200 words. `manage.py "
    "import_sessions` appends each conversation and queues the jobs that become due. Again: a second import of the "
    "same file, which adds nothing. Memory: the peak resident size. Raw, for both: `json.load` of the file, and one "
    "COPY of its messages in one transaction."
)
FILE_MB = 200
WORDS = "the kiln was hot and glaze ran over bowls which we had thrown on Friday while it rained in Turin".split()

INSERT_SESSION = """
INSERT INTO sessions_app_session
    (user_id, session_id, agent_id, source, title, status, message_count, total_tokens, last_sequence,
     last_activity_at, built_message_count, built_total_tokens, live_from_sequence, live_tokens, weighted_tokens,
     formed_message_count, formed_weighted_tokens, counted_message_count, embedded_sequence, kept_from_sequence,
     legal_hold, retraction_count, metadata, created_at)
VALUES (%(user)s, %(session)s, 'default', 'raw', '', 'active', %(count)s, 0, %(count)s - 1, now(), 0, 0, 0, 0, 0,
        0, 0, 0, -1, 0, false, 0, '{}', now())
RETURNING id
"""
COPY_MESSAGES = """
COPY sessions_app_message
    (session_id, user_id, sequence, kind, role, tool_name, content, tokens, external_id, created_at, metadata)
FROM STDIN
"""


def figures(site: Site) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="memory-bench-") as folder:
        path = Path(folder) / "conversations.json"
        _write_export(path)
        before = Message.objects.count()
        first = _imported(path)
        messages = Message.objects.count() - before
        again = _imported(path)
        started = time.monotonic()
        _import_raw(site, path)
        raw = time.monotonic() - started
        return [
            _figure(f"{FILE_MB} MB", path, messages, first, raw),
            _figure(f"{FILE_MB} MB again", path, messages, again, raw),
        ]


def _figure(what: str, path: Path, messages: int, measured: tuple[float, float], raw: float) -> Figure:
    seconds, memory = measured
    megabytes = path.stat().st_size / 1e6
    rate = f"{megabytes / seconds:.2f} MB/s, {messages / seconds:,.0f} messages/s, {memory:.0f} MB of memory"
    return Figure.of(what, [[seconds]], [[raw]], rate=rate, wanted="≥ 8 MB/s, < 150 MB of memory")


def _imported(path: Path) -> tuple[float, float]:
    """Run the command. Return its seconds, and its peak resident size in megabytes."""
    seconds, peak = run_command("import_sessions", str(path), "--user", "import", "--verbosity", "0")
    return seconds, peak / 1e6


def _write_export(path: Path) -> None:
    chance = random.Random(1)
    with path.open("w") as file:
        file.write("[")
        for number in range(10**9):
            file.write(json.dumps(_conversation(number, chance)))
            if file.tell() > FILE_MB * 1_000_000:
                break
            file.write(",\n")
        file.write("]")


def _conversation(number: int, chance: random.Random) -> dict[str, Any]:
    messages = [
        {
            "uuid": f"{number:08}-{position:04}",
            "sender": ("human", "assistant")[position % 2],
            "content": [{"type": "text", "text": " ".join(chance.choices(WORDS, k=chance.choice((10, 60, 200))))}],
            "created_at": f"2024-05-01T12:{position // 60:02}:{position % 60:02}.000000Z",
            "attachments": [],
            "files": [],
        }
        for position in range(chance.choice((4, 10, 30, 120)))
    ]
    return {"uuid": f"{number:08}", "name": "The kiln", "created_at": "2024-05-01T12:00:00Z", "chat_messages": messages}


def _import_raw(site: Site, path: Path) -> None:
    user = UserProfile.objects.ensure("raw-import").pk
    with path.open() as file:
        conversations = json.load(file)
    with psycopg.connect(site.conninfo) as connection, connection.cursor() as cursor:
        sessions = [_raw_session(cursor, user, conversation) for conversation in conversations]
        with cursor.copy(COPY_MESSAGES) as copy:
            for session, conversation in zip(sessions, conversations, strict=True):
                for row in _raw_rows(session, user, conversation):
                    copy.write_row(row)


def _raw_session(cursor: "psycopg.Cursor[Any]", user: int, conversation: dict[str, Any]) -> int:
    values = {"user": user, "session": conversation["uuid"], "count": len(conversation["chat_messages"])}
    [(session,)] = cursor.execute(INSERT_SESSION, values).fetchall()
    return int(session)


def _raw_rows(session: int, user: int, conversation: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    for position, message in enumerate(conversation["chat_messages"]):
        text = message["content"][0]["text"]
        role = "user" if message["sender"] == "human" else "assistant"
        place = session, user, position, "turn", role, ""
        yield *place, text, len(text) // 4, message["uuid"], message["created_at"], "{}"
