"""The body of a call: its messages as the transcript takes them, and memory put before them."""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError as InvalidMessage
from rest_framework.exceptions import ParseError, ValidationError

from moments_app.interfaces.chat.errors import ChatError
from sessions_app.api.messages import MessageInput
from sessions_app.api.parsers import StrictJSONParser
from sessions_app.imports.openai import turn_fields
from sessions_app.models import Message
from sessions_app.transcript.append import NewMessage

QUERY_CHARS = 1_000  # of the newest message that memory is searched for
INSTRUCTIONS = ("system", "developer")  # roles of what tells the model what to do

_message_input = MessageInput()


@dataclass(frozen=True)
class ChatRequest:
    """The body that a caller sent.

    Args:
        body: as JSON.
        turns: its messages but the system's, which tell the model what to do and are nobody's words.
    """

    body: dict[str, Any]
    turns: list[NewMessage]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages as they were sent."""
        messages: list[dict[str, Any]] = self.body["messages"]
        return messages

    @property
    def query(self) -> str:
        """The person's last message."""
        said = [turn.content for turn in self.turns if turn.role == Message.Role.USER]
        return said[-1][:QUERY_CHARS] if said else ""

    @property
    def has_history(self) -> bool:
        """True where the caller keeps the conversation itself: earlier turns are in the call."""
        return any(turn.role != Message.Role.USER for turn in self.turns)

    def with_memory(
        self,
        memory: dict[str, Any],
        earlier: Sequence[dict[str, Any]],
        recalled: Sequence[dict[str, Any]],
        *,
        without: int,
    ) -> bytes:
        """Return the body with memory in it: what lasts first, what was recalled right before the person's message.

        So a provider's prompt cache has all that stands before it from the last round.

        Args:
            memory: a system message.
            earlier: turns that the caller did not send; they come behind the caller's instructions.
            recalled: system messages for the newest message of the person.
            without: how many of the caller's oldest turns are left out; instructions never are.
        """
        turns = [number for number, message in enumerate(self.messages) if message["role"] not in INSTRUCTIONS]
        first = turns[0] if turns else len(self.messages)
        users = [number for number in turns if self.messages[number]["role"] == Message.Role.USER]
        newest = users[-1] if users else len(self.messages)
        kept = [number for number in range(len(self.messages)) if number not in turns[:without]]
        instructions, before, after = (
            [self.messages[number] for number in kept if number in part]
            for part in (range(first), range(first, newest), range(newest, len(self.messages)))
        )
        messages = [memory, *instructions, *earlier, *before, *recalled, *after]
        return json.dumps(self.body | {"messages": messages}).encode()  # in ASCII, which has lone surrogates too


def read_request(data: bytes) -> ChatRequest:
    """Return the request in a body.

    Raises:
        ChatError: naming what is wrong.
    """
    try:
        body = StrictJSONParser().parse(io.BytesIO(data))
    except ParseError as error:
        raise ChatError(400, "invalid_json", str(error.detail)) from None
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(messages, list) or not messages:
        raise ChatError(400, "invalid_messages", "messages is missing, or not a list of messages.")
    tools: dict[str, str] = {}
    turns = [_turn(number, message, tools) for number, message in enumerate(messages)]
    return ChatRequest(body, [turn for turn in turns if turn.role != Message.Role.SYSTEM])


def _turn(number: int, message: Any, tools: dict[str, str]) -> NewMessage:
    try:
        return new_message(message, tools)
    except InvalidMessage as error:
        field = ".".join(map(str, error.errors()[0]["loc"])) or "it"
        reason = f"{field} is not as a chat message has it."
    except ValidationError as error:
        field, [detail, *_] = next(iter(cast(dict[str, list[Any]], error.detail).items()))
        reason = f"{field}: {detail}"
    raise ChatError(400, "invalid_message", f"messages[{number}]: {reason}")


def new_message(message: Any, tools: dict[str, str]) -> NewMessage:
    """Return a chat message as the transcript takes it.

    Args:
        message: as it was sent.
        tools: the names of tools by the ids of calls before it; those of its own are added.

    Raises:
        pydantic.ValidationError: it is no chat message.
        rest_framework.exceptions.ValidationError: it can't be stored.
    """
    return NewMessage(**_message_input.run_validation(turn_fields(message, tools)))
