"""Requests of the chat endpoint: their messages, with or without memory, and their key, person and session."""

import asyncio
import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from django.conf import settings
from django.core.cache import cache
from django.db import DatabaseError
from django.db.models import prefetch_related_objects
from pydantic import ValidationError as InvalidMessage
from rest_framework.exceptions import ParseError, ValidationError
from rest_framework.request import Request
from starlette.datastructures import Headers

from moments_app.interfaces.asgi import in_chat_thread
from moments_app.interfaces.chat.errors import ChatError
from sessions_app.api.authentication import issuer_of
from sessions_app.api.fields import PublicIdField
from sessions_app.api.json_bodies import StrictJSONParser
from sessions_app.api.messages import MessageInput
from sessions_app.api.throttling import KeyRateThrottle
from sessions_app.models import ApiKey, Message
from sessions_app.models.api_key import CHAT
from sessions_app.models.application import DEFAULT
from sessions_app.text.chat_messages import turn_fields
from sessions_app.transcript.append import NewMessage

QUERY_CHARS = 1_000  # maximum characters of the newest message that are used as a query
INSTRUCTIONS = ("system", "developer")  # roles of messages that instruct the model
URL_PREFIX = "/v1/"  # the prefix of the chat endpoint's URLs
CACHE_SECONDS = 300  # how long a verified key stays valid while the database is down

_message_input, _public_id = MessageInput(), PublicIdField()
_ID_RULE = "must have 1 to 255 characters without a slash or NUL, and can't be '.' or '..'"


@dataclass(frozen=True)
class Entry:
    role: str
    parts: Sequence[dict[str, Any]]  # the parts of the body from which the message was parsed


@dataclass(frozen=True)
class ChatRequest:
    """The body of a call."""

    body: dict[str, Any]
    data: bytes  # the original body
    entries: Sequence[Entry]  # all messages, including system messages
    turns: list[NewMessage]  # all messages except system messages

    @property
    def query(self) -> str:
        """The start of the user's last message."""
        messages = [turn.content for turn in self.turns if turn.role == Message.Role.USER]
        return messages[-1][:QUERY_CHARS] if messages else ""

    @property
    def has_history(self) -> bool:
        """True if the client sends earlier turns of the conversation."""
        return any(turn.role == Message.Role.ASSISTANT for turn in self.turns)

    @property
    def tool_call_ids(self) -> list[str]:
        """The ids of the tool calls whose results the client sends."""
        results = [turn.payload or {} for turn in self.turns if turn.role == Message.Role.TOOL]
        return [result["tool_call_id"] for result in results if "tool_call_id" in result]

    @property
    def conversation(self) -> Any:
        return None

    def derived_session(self, user_id: str) -> str:
        """Return a session id derived from the user and the first message.

        If the client sends the history, all calls of a conversation get the same id. The id is blank if there is no
        message.
        """
        if not self.turns:
            return ""
        first = self.turns[0]
        identity = json.dumps([user_id, first.role, first.name, first.content, first.payload], sort_keys=True)
        return f"chat-{hashlib.sha256(identity.encode()).hexdigest()[:32]}"

    def with_memory(
        self,
        memory: dict[str, Any],
        earlier: Sequence[dict[str, Any]],
        recalled: Sequence[dict[str, Any]],
        *,
        without: int,
    ) -> bytes:
        """Return the body with lasting memory at the start, and search results right before the user's last message.

        This order lets a provider's prompt cache reuse everything before the search results of the last round.

        Args:
            memory: a system message.
            earlier: turns that the client did not send, to insert after the client's instructions.
            recalled: system messages with the search results.
            without: the number of the client's oldest turns to leave out. Instructions are never left out.
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
        lasting, turns_before, results = map(self.as_parts, ([memory], earlier, recalled))
        parts = [*lasting, *instructions, *turns_before, *before, *results, *after]
        return json.dumps(self.with_parts(parts)).encode()  # ASCII, because UTF-8 can't encode lone surrogates

    def as_parts(self, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Convert chat messages to parts of the body."""
        return list(messages)

    def with_parts(self, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return self.body | {"messages": parts}

    def without_memory(self) -> bytes:
        return self.data


def read_request(data: bytes) -> ChatRequest:
    """Parse the body of a Chat Completions request, or raise `ChatError`."""
    body = read_body(data)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ChatError(400, "invalid_messages", "Send messages as a list with at least one message.")
    turns = list(read_turns((f"messages[{number}]", message) for number, message in enumerate(messages)))
    return ChatRequest(body, data, [Entry(message["role"], [message]) for message in messages], turns)


def read_body(data: bytes) -> dict[str, Any]:
    """Parse a body. Return an empty dict if it is not a JSON object. May raise `ChatError`."""
    try:
        body = StrictJSONParser().parse(io.BytesIO(data))
    except ParseError as error:
        raise ChatError(400, "invalid_json", str(error.detail)) from None
    return body if isinstance(body, dict) else {}


def read_turns(messages: Iterable[tuple[str, Any]]) -> Iterator[NewMessage]:
    """Convert chat messages, each with its path in the body, to turns. Leave out system messages.

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
        field = next(map(str, error.errors()[0]["loc"]), "it")  # the rest identifies the variant of a union type
        reason = f"{field} does not match the format of a chat message."
    except ValidationError as error:
        field, [detail, *_] = next(iter(cast(dict[str, list[Any]], error.detail).items()))
        reason = f"{field}: {detail}"
    raise ChatError(400, "invalid_message", f"{place}: {reason}")


def new_message(message: Any, tools: dict[str, str]) -> NewMessage:
    """Return a chat message as a turn for the transcript.

    Args:
        tools: the tool names of earlier calls, keyed by the call's id. This message's calls are added.

    Raises:
        pydantic.ValidationError: it is not a chat message.
        rest_framework.exceptions.ValidationError: it can't be stored.
    """
    return NewMessage(**_message_input.run_validation(turn_fields(message, tools)))


@dataclass(frozen=True)
class ChatSession:
    """The session of a call. If `agent_id` is blank, the session's agent does not change."""

    user_id: str
    session_id: str
    agent_id: str = ""
    application: int = DEFAULT  # missing in records of earlier releases


async def authenticated(headers: Headers) -> ApiKey:
    """Return the API key of a call, or raise `ChatError`."""
    kind, _, text = headers.get("Authorization", "").partition(" ")
    key = await _verified(text.strip()) if kind.lower() == "bearer" else None
    if key is None:
        raise ChatError(401, "invalid_api_key", "The API key is missing or not valid.", {"WWW-Authenticate": "Bearer"})
    if not key.allows(CHAT):
        raise ChatError(403, "insufficient_scope", "This request needs an API key with the scope write.")
    throttle = KeyRateThrottle()
    if not throttle.allow_request(cast(Request, SimpleNamespace(auth=key)), cast(Any, None)):
        wait = str(max(1, round(throttle.wait() or 1)))
        raise ChatError(429, "rate_limited", f"Too many requests. Try again in {wait} s.", {"Retry-After": wait})
    return key


async def _verified(text: str) -> ApiKey | None:
    """Return the valid key with this text, or None. If the database does not respond, use a cache."""
    place = f"chat_key:{hashlib.sha256(text.encode()).hexdigest()}"
    try:
        work = in_chat_thread(partial(_key_with_text, text))
        key = await asyncio.wait_for(work, settings.CHAT.memory_timeout_seconds)
    except (DatabaseError, TimeoutError):
        cached: ApiKey | None = cache.get(place)
        if cached is None or not cached.is_valid():
            text = "The API key can't be checked, because the database does not respond. Try again in a moment."
            raise ChatError(503, "unavailable", text, {"Retry-After": "1"}) from None
        return cached
    cache.set(place, key, CACHE_SECONDS)
    return key


def _key_with_text(text: str) -> ApiKey | None:
    issuer = issuer_of(text)
    key = issuer.key_with(text, URL_PREFIX) if issuer else ApiKey.objects.verify(text)
    if key:
        prefetch_related_objects([key], "user")
        key.touch()
    return key


def chat_session_of(key: ApiKey, headers: Headers, request: ChatRequest) -> ChatSession:
    """Return the session named in the headers or the body, or derived from the first message. May raise `ChatError`."""
    own = key.user.user_id if key.user else ""
    # With a user's key, `user` in the body is ignored here and forwarded to the upstream.
    user_id = _id_in_header(headers, "X-User-Id") or own or _id_in_body("user", request.body.get("user"))
    if not user_id:
        text = "Send X-User-Id, or user in the body. A service key must name the user."
        raise ChatError(400, "missing_user_id", text)
    if own and user_id != own:
        raise ChatError(404, "not_found", "Not found.")
    session_id = _id_in_header(headers, "X-Session-Id") or _id_in_body("conversation", request.conversation)
    session_id = session_id or request.derived_session(user_id)
    if not session_id:
        raise ChatError(400, "missing_session_id", "Send X-Session-Id, the id of the conversation.")
    return ChatSession(user_id, session_id, _id_in_header(headers, "X-Agent-Id"), key.application_id)


def _id_in_body(field: str, value: Any) -> str:
    if value is None:
        return ""
    try:
        text: str = _public_id.run_validation(value)
    except ValidationError:
        raise ChatError(400, f"invalid_{field}", f"{field} {_ID_RULE}.") from None
    return text


def _id_in_header(headers: Headers, name: str) -> str:
    value = headers.get(name)
    if value is None:
        return ""
    try:
        text: str = _public_id.run_validation(value.encode("latin-1").decode())
    except (UnicodeDecodeError, ValidationError):
        raise ChatError(400, "invalid_header", f"{name} {_ID_RULE}. Send it as UTF-8.") from None
    return text
