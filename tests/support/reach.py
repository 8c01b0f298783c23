"""Everything that a person receives from memory, through every interface, as texts."""

import io
import json
import zipfile
from typing import Any

from asgiref.sync import async_to_sync

from moments_app.interfaces.chat.endpoint import with_memory
from moments_app.interfaces.chat.request import ChatSession, read_request
from moments_app.interfaces.mcp import server
from moments_app.interfaces.mcp.connection import CURRENT, Connection
from moments_app.models import MemoryStream
from sessions_app.models import Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.export import export_user
from sessions_app.transcript.append import NewMessage, append
from tests.support.api import Api

QUERY = "What about mental health support, the test of a patient in the clinic, and a link to the market?"


def context(service: Api, user_id: str, session_id: str = "asking", **asked: Any) -> str:
    """Return a context over REST."""
    answer = service.get("memory/context", user_id=user_id, session_id=session_id, query=QUERY, **asked)
    return str(answer.json()["context"])


def reached(service: Api, user_id: str, application: int = DEFAULT) -> dict[str, str]:
    """Return what a person receives in a new session, with an agent that others use too. `service` has a key for it."""
    user = UserProfile.objects.ensure(user_id, application)
    if not Session.objects.filter(user=user, session_id="asking").exists():
        append(user, "asking", [NewMessage("user", "Hello.")])
    shards = MemoryStream.objects.filter(stream_type="agent")
    states = ("active", "absorbed", "evicted")
    items = [
        service.get(f"streams/{shard.stream_id}/atoms", user_id=user_id, state=state).json()
        for shard in shards
        for state in states
    ]
    asked = {"user_id": user_id, "agent_id": "default", "query": QUERY, "match_count": 100}
    found = {
        "context": context(service, user_id),
        "streams": json.dumps(service.get("streams", user_id=user_id, limit=200).json()),
        "lines": json.dumps([service.get(f"streams/{one.stream_id}", user_id=user_id).json() for one in shards]),
        "atoms": json.dumps(items),
        "search": service.post("memory/search", **asked).content.decode(),
        "chat": _chat(user_id, application),
        "export": _export(user_id, application),
    }
    return found | _over_mcp(user_id, application)


def _chat(user_id: str, application: int) -> str:
    body = {"model": "m", "messages": [{"role": "user", "content": QUERY}]}
    asked = read_request(json.dumps(body).encode())
    return with_memory(ChatSession(user_id, "asking", application=application), asked).body.decode().replace(QUERY, "")


def _over_mcp(user_id: str, application: int) -> dict[str, str]:
    token = CURRENT.set(Connection(user_id, "default", "key:test", "admin", application))
    try:
        search = async_to_sync(server.search_long_term_memory)(QUERY, match_count=100)
        context = async_to_sync(server.get_context)("asking", QUERY)
        return {"mcp context": json.dumps(context, default=str), "mcp search": json.dumps(search, default=str)}
    finally:
        CURRENT.reset(token)


def _export(user_id: str, application: int) -> str:
    file = io.BytesIO()
    export_user(user_id, file, application=application)
    with zipfile.ZipFile(file) as archive:
        return "\n".join(archive.read(name).decode() for name in archive.namelist())
