"""Clients that append and chat all the time, and record acknowledged turns in the ledger."""

import http.client
import json
import threading
from collections.abc import Callable
from itertools import cycle
from types import TracebackType
from typing import Any, Self

from drill.ledger import Ledger, Turn, new_mark
from drill.site import Site

PAUSE = 0.1  # seconds between two rounds of a client
RETRY_SECONDS = 0.3  # seconds before a retry
DONE = "[DONE]"
LAST_EVENTS = (DONE, "response.completed")
CHAT_PATHS = {"/v1/chat/completions": "messages", "/v1/responses": "input"}  # and the field with the messages


class Load:
    """Clients that append, each for its own person, and clients that chat, while the block runs.

    Args:
        site: The site.
        ledger: Returns the current ledger.
        name: The name of the people, unique for this load.
        clients: The number of clients that append, and of those that chat.
    """

    def __init__(self, site: Site, ledger: Callable[[], Ledger], name: str, clients: int) -> None:
        self._site, self._ledger = site, ledger
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=target, args=(f"{name}-{target.__name__.strip('_')}-{number}",), daemon=True)
            for target in (self._write, self._chat)
            for number in range(clients)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(60 if kind is None else 1)

    def _write(self, person: str) -> None:
        while not self._ending.wait(PAUSE):
            append(self._site, self._ledger(), person, ending=self._ending)

    def _chat(self, person: str) -> None:
        for path in cycle(CHAT_PATHS):
            if self._ending.wait(PAUSE):
                return
            if not chat(self._site, self._ledger(), person, path):
                self._ending.wait(RETRY_SECONDS)


def append(
    site: Site, ledger: Ledger, person: str, *, ending: threading.Event | None = None, session: str = "", text: str = ""
) -> bool:
    """Append a round of two turns. Retry until it is acknowledged, as a client should.

    Args:
        site: The site.
        ledger: Records the turns.
        person: The person.
        ending: When it is set, there are no more retries.
        session: The session. Blank for the person's only one.
        text: A text for the first turn.

    Returns:
        False if it was given up.
    """
    mark = new_mark()
    turns: list[Turn] = [("user", mark), ("assistant", mark)]
    messages = [
        {
            "role": role,
            "content": f"{mark} {text or 'was said'} by the {role} in a drill.",
            "external_id": f"{mark}-{role}",
        }
        for role, mark in turns
    ]
    body = {"user_id": person, "messages": messages}
    ledger.send(*turns)
    wait = ending or threading.Event()
    while site.status("POST", f"/api/v1/sessions/{session or person}/messages", body) not in (200, 201):
        if wait.wait(RETRY_SECONDS):
            return False
    ledger.acknowledge(*turns)
    return True


def chat(site: Site, ledger: Ledger, person: str, path: str) -> bool:
    """Send one message through the chat endpoint, and read the answer to its end.

    Args:
        site: The site.
        ledger: Records the turns.
        person: The person.
        path: One of `CHAT_PATHS`.

    Returns:
        Whether the answer was complete. If so, the round must be stored.
    """
    mark = new_mark(is_chat=True)
    turns: list[Turn] = [("user", mark), ("assistant", mark)]
    said = [{"role": "user", "content": f"Please note {mark}."}]
    body = {"model": "drill", "stream": True, CHAT_PATHS[path]: said}
    headers = {"X-User-Id": person, "X-Session-Id": f"{person}-chat"}
    ledger.send(*turns)
    try:
        status, answer = site.request("POST", path, body, headers=headers)
    except (OSError, http.client.HTTPException):
        return False
    if status != 200 or not came_to_its_end(answer):
        return False
    ledger.acknowledge(*turns)
    return True


def came_to_its_end(answer: bytes) -> bool:
    """Return whether a stream of either protocol has its last event, and no error."""
    lines = answer.decode(errors="replace").splitlines()
    events = [_event(line[6:]) for line in lines if line.startswith("data: ")]
    return bool(events) and events[-1].get("type") in LAST_EVENTS and not any("error" in event for event in events)


def _event(data: str) -> dict[str, Any]:
    """Parse an event of a stream. The last event of chat completions isn't JSON."""
    event: dict[str, Any] = {"type": data} if data == DONE else json.loads(data)
    return event
