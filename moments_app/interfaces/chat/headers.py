"""Read the key, the person and the session of a call from its headers or its body."""

import asyncio
import hashlib
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from django.conf import settings
from django.core.cache import cache
from django.db import DatabaseError
from django.db.models import prefetch_related_objects
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from starlette.datastructures import Headers

from moments_app.interfaces.chat.errors import ChatError
from moments_app.interfaces.chat.request import ChatRequest
from moments_app.interfaces.chat.threads import in_thread
from sessions_app.api.authentication import issuer_of
from sessions_app.api.fields import PublicIdField
from sessions_app.api.throttling import KeyRateThrottle
from sessions_app.models import ApiKey
from sessions_app.models.api_key import CHAT
from sessions_app.models.application import DEFAULT

ADDRESSES = "/v1/"  # the prefix of the chat endpoint's URLs
CACHE_SECONDS = 300  # how long a verified key stays valid while the database is down

_public_id = PublicIdField()


@dataclass(frozen=True)
class ChatSession:
    """The session of a call. A blank `agent_id` stands for the session's own."""

    user_id: str
    session_id: str
    agent_id: str = ""
    application: int = DEFAULT  # records of an earlier release don't have it


async def authenticated(headers: Headers) -> ApiKey:
    """Return the key of a call, if it has the write scope.

    Raises:
        ChatError: there is none, it is invalid, may only read, or exceeds its rate limit.
    """
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
    """Return the valid key with this text. While the database is down, return one that was recently valid."""
    place = f"chat_key:{hashlib.sha256(text.encode()).hexdigest()}"
    try:
        key = await asyncio.wait_for(in_thread(partial(_found, text)), settings.CHAT.memory_timeout_seconds)
    except (DatabaseError, TimeoutError):
        cached: ApiKey | None = cache.get(place)
        if cached is None or not cached.is_valid():
            text = "The API key can't be checked, because the database does not respond. Try again in a moment."
            raise ChatError(503, "unavailable", text, {"Retry-After": "1"}) from None
        return cached
    cache.set(place, key, CACHE_SECONDS)
    return key


def _found(text: str) -> ApiKey | None:
    issuer = issuer_of(text)
    key = issuer.key_with(text, ADDRESSES) if issuer else ApiKey.objects.verify(text)
    if key:
        prefetch_related_objects([key], "user")
        key.touch()
    return key


def chat_session_of(key: ApiKey, headers: Headers, request: ChatRequest) -> ChatSession:
    """Return the session of a call. It is named by headers or by the body, or derived from the history.

    Raises:
        ChatError: a name is missing or invalid; or the key may not act for the person, which is reported as not found.
    """
    own = key.user.user_id if key.user else ""
    # With a user's key, a person in the body is only meant for the upstream.
    user_id = _id(headers, "X-User-Id") or own or _named("user", request.body.get("user"))
    if not user_id:
        text = "Send X-User-Id, or user in the body. A service key must name the user."
        raise ChatError(400, "missing_user_id", text)
    if own and user_id != own:
        raise ChatError(404, "not_found", "Not found.")
    session_id = _id(headers, "X-Session-Id") or _named("conversation", request.conversation)
    session_id = session_id or request.derived_session(user_id)
    if not session_id:
        raise ChatError(400, "missing_session_id", "Send X-Session-Id, the id of the conversation.")
    return ChatSession(user_id, session_id, _id(headers, "X-Agent-Id"), key.application_id)


def _named(field: str, value: Any) -> str:
    """Return the id in a field of the body; blank if it is missing."""
    if value is None:
        return ""
    try:
        text: str = _public_id.run_validation(value)
    except ValidationError:
        raise ChatError(400, f"invalid_{field}", f"{field} must have 1 to 255 characters and no slash.") from None
    return text


def _id(headers: Headers, name: str) -> str:
    """Return the id in a header, in UTF-8; blank if it is missing."""
    value = headers.get(name)
    if value is None:
        return ""
    try:
        text: str = _public_id.run_validation(value.encode("latin-1").decode())
    except (UnicodeDecodeError, ValidationError):
        raise ChatError(400, "invalid_header", f"{name} must have 1 to 255 characters in UTF-8 and no slash.") from None
    return text
