"""The body of a call: convert its messages to turns, and add memory to it."""

import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError as InvalidMessage
from rest_framework.exceptions import ParseError, ValidationError

from moments_app.interfaces.chat.errors import ChatError
from sessions_app.api.json_bodies import StrictJSONParser
from sessions_app.api.messages import MessageInput
from sessions_app.models import Message
from sessions_app.text.chat_messages import turn_fields
from sessions_app.transcript.append import NewMessage

QUERY_CHARS = 1_000  # of the newest message that are used to search memory
INSTRUCTIONS = ("system", "developer")  # roles of instructions to the model

_message_input = MessageInput()


@dataclass(frozen=True)
class Entry:
    """A message of a body, with the parts of the body that contain it.

    Args:
        parts: the original parts.
    """

    role: str
    parts: Sequence[dict[str, Any]]


@dataclass(frozen=True)
class ChatRequest:
    """The body that a caller sent.

    Args:
        body: the body as JSON.
        data: the original bytes.
        turns: its messages except system messages, which are instructions to the model.
    """

    body: dict[str, Any]
    data: bytes
    entries: Sequence[Entry]
    turns: list[NewMessage]

    @property
    def query(self) -> str:
        """The person's last message."""
        said = [turn.content for turn in self.turns if turn.role == Message.Role.USER]
        return said[-1][:QUERY_CHARS] if said else ""

    @property
    def has_history(self) -> bool:
        """True if the caller sends the conversation's earlier turns."""
        return any(turn.role != Message.Role.USER for turn in self.turns)

    @property
    def conversation(self) -> Any:
        """The conversation that the body names; None if it names none."""
        return None

    def derived_session(self, user_id: str) -> str:
        """Return a session id derived from the user and the first message.

        A client that sends the history gets the same id in each call of a conversation. Blank if there is no message.
        """
        if not self.turns:
            return ""
        first = self.turns[0]
        said = json.dumps([user_id, first.role, first.name, first.content, first.payload], sort_keys=True)
        return f"chat-{hashlib.sha256(said.encode()).hexdigest()[:32]}"

    def with_memory(
        self,
        memory: dict[str, Any],
        earlier: Sequence[dict[str, Any]],
        recalled: Sequence[dict[str, Any]],
        *,
        without: int,
    ) -> bytes:
        """Return the body with memory: lasting memory first, and search results right before the person's message.

        So a provider's prompt cache can reuse everything before the results from the last round.

        Args:
            memory: a system message.
            earlier: turns that the caller did not send; they follow the caller's instructions.
            recalled: system messages for the person's newest message.
            without: how many of the caller's oldest turns are left out; instructions are never left out.
        """
        turns = [number for number, entry in enumerate(self.entries) if entry.role not in INSTRUCTIONS]
        first = turns[0] if turns else len(self.entries)
        users = [number for number in turns if self.entries[number].role == Message.Role.USER]
        newest = users[-1] if users else len(self.entries)
        kept = [number for number in range(len(self.entries)) if number not in turns[:without]]
        instructions, before, after = (
            [part for number in kept if number in places for part in self.entries[number].parts]
            for places in (range(first), range(first, newest), range(newest, len(self.entries)))
        )
        standing, turns_before, found = map(self.written, ([memory], earlier, recalled))
        parts = [*standing, *instructions, *turns_before, *before, *found, *after]
        return json.dumps(self.with_parts(parts)).encode()  # ASCII escapes can represent lone surrogates too

    def written(self, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return chat messages as parts of the body."""
        return list(messages)

    def with_parts(self, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the body with these parts as its messages."""
        return self.body | {"messages": parts}

    def without_memory(self) -> bytes:
        """Return the body for the upstream if memory is not available."""
        return self.data


def read_request(data: bytes) -> ChatRequest:
    """Return the request in a body.

    Raises:
        ChatError: the request is invalid; the message says why.
    """
    body = read_body(data)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ChatError(400, "invalid_messages", "Send messages as a list with at least one message.")
    turns = list(read_turns((f"messages[{number}]", message) for number, message in enumerate(messages)))
    return ChatRequest(body, data, [Entry(message["role"], [message]) for message in messages], turns)


def read_body(data: bytes) -> dict[str, Any]:
    """Return a body as JSON; an empty dict if it is not an object.

    Raises:
        ChatError: it is not JSON.
    """
    try:
        body = StrictJSONParser().parse(io.BytesIO(data))
    except ParseError as error:
        raise ChatError(400, "invalid_json", str(error.detail)) from None
    return body if isinstance(body, dict) else {}


def read_turns(messages: Iterable[tuple[str, Any]]) -> Iterator[NewMessage]:
    """Yield chat messages as turns for the transcript, except system messages.

    Args:
        messages: the original messages, each with its place in the body.

    Raises:
        ChatError: a message is invalid or can't be stored.
    """
    tools: dict[str, str] = {}
    for place, message in messages:
        turn = _turn(place, message, tools)
        if turn.role != Message.Role.SYSTEM:
            yield turn


def _turn(place: str, message: Any, tools: dict[str, str]) -> NewMessage:
    try:
        return new_message(message, tools)
    except InvalidMessage as error:
        field = next(map(str, error.errors()[0]["loc"]), "it")  # the further parts name a variant of its type
        reason = f"{field} does not match the format of a chat message."
    except ValidationError as error:
        field, [detail, *_] = next(iter(cast(dict[str, list[Any]], error.detail).items()))
        reason = f"{field}: {detail}"
    raise ChatError(400, "invalid_message", f"{place}: {reason}")


def new_message(message: Any, tools: dict[str, str]) -> NewMessage:
    """Return a chat message as a turn for the transcript.

    Args:
        tools: names of tools by the ids of earlier calls; this message's calls are added.

    Raises:
        pydantic.ValidationError: it is not a chat message.
        rest_framework.exceptions.ValidationError: it can't be stored.
    """
    return NewMessage(**_message_input.run_validation(turn_fields(message, tools)))
