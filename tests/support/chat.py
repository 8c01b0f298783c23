"""Chats through the chat endpoint, and the resulting transcript."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import openai
import psycopg
from django.db import connection

from sessions_app.models import Message
from tests.support.processes import database_url
from tests.support.waiting import wait_until

Client = Callable[..., openai.OpenAI]


def ask(client: openai.OpenAI, *messages: str | dict[str, Any], **fields: Any) -> Any:
    """Make a call with these messages. A text is a message of the user."""
    said: Any = [{"role": "user", "content": text} if isinstance(text, str) else text for text in messages]
    return client.chat.completions.create(model="test-model", messages=said, **fields)


def transcript(user_id: str = "ada", session_id: str = "s1") -> list[tuple[str, str]]:
    """Return the roles and texts of a session."""
    turns = Message.objects.turns().filter(session__session_id=session_id, user__user_id=user_id)
    return [(turn.role, turn.content) for turn in turns.in_order()]


def stored(count: int, session_id: str = "s1", user_id: str = "ada") -> list[tuple[str, str]]:
    """Return the transcript once it has this many turns, because answers don't wait until it is stored."""
    wait_until(lambda: len(transcript(user_id, session_id)) >= count)
    return transcript(user_id, session_id)


@contextmanager
def database_away() -> Iterator[None]:
    """Reject all new connections to the test's database."""
    name = connection.settings_dict["NAME"]
    connection.close()
    with psycopg.connect(database_url(), dbname="postgres", autocommit=True) as administrator:
        administrator.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        try:
            yield
        finally:
            administrator.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
