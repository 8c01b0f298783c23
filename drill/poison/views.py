"""What a person receives from memory, through every interface."""

import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from drill.poison.doors import Installation, answered, ask, call
from drill.site import wait_for

QUERY = (
    "How should you answer, what do you remember of me and of bo, and what of the link, the insurance, the clinic, "
    "the invoice, the bank, the password, the account manager and the best of all answers?"
)
HOME, LOOKING = "home", "looking"  # a session from before the attacks, and one that is only used for checks
FORMATS = ("xml", "markdown", "messages", "json")
STORED_SECONDS = 60  # maximum time to store a round
STATES = ("active", "absorbed", "evicted")

Views = dict[str, str]


def contexts(site: Installation, person: str) -> Views:
    """Return a person's contexts, in a session from before the attacks."""
    found = {f"context, {form}": _context(site, person, format=form) for form in FORMATS}
    return found | {"context, stable": _context(site, person, format="xml", plan="stable")}


def memory(site: Installation, person: str) -> Views:
    """Return what else a person receives from memory, except the transcript."""
    search = {"user_id": person, "query": QUERY, "match_count": 100}
    return {
        "search": text_of(ask(site, "POST", "/api/v1/memory/search", search)),
        "profile": text_of(ask(site, "GET", f"/api/v1/users/{person}")),
        "moments": _listed(site, "moments", person),
        "tasks": _listed(site, "entities", person),
        "summaries": _listed(site, f"sessions/{HOME}/summaries", person),
        **_streams(site, person, STATES[:1]),
        **_over_mcp(site, person),
        "chat": _chat(site, person),
    }


def everything(site: Installation, person: str) -> Views:
    """Return everything that a person receives: memory, former memory, and the export."""
    export = {"export": _export(site, person)}
    return contexts(site, person) | memory(site, person) | _streams(site, person, STATES) | export


def text_of(value: Any) -> str:
    """Return all text in a response."""
    return "\n".join(_texts(value))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield name
            yield from _texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, str):
        yield value


def _context(site: Installation, person: str, **asked: str) -> str:
    fields = {"user_id": person, "session_id": HOME, "query": QUERY} | asked
    answer = ask(site, "GET", f"/api/v1/memory/context?{urlencode(fields)}")
    if asked["format"] == "json":
        lines = [item["text"] for layer in answer["layers"] for item in layer["items"] if layer["name"] != "query"]
        return "\n".join(lines)
    context = answer["context"]
    return context if isinstance(context, str) else json.dumps(context, ensure_ascii=False, indent=0)


def _listed(site: Installation, path: str, person: str) -> str:
    return text_of(ask(site, "GET", f"/api/v1/{path}?{urlencode({'user_id': person, 'limit': 200})}"))


def _streams(site: Installation, person: str, states: tuple[str, ...]) -> Views:
    items = [item for state in states for item in items_of(site, person, state)]
    return {"streams": text_of(_listed_streams(site, person)), f"items, {', '.join(states)}": text_of(items)}


def items_of(site: Installation, person: str, *states: str) -> list[dict[str, Any]]:
    """Return the items of a person's streams and shards in some states, by default in all."""
    found = []
    for stream in _listed_streams(site, person)["streams"]:
        for state in states or STATES:
            asked = urlencode({"user_id": person, "state": state, "limit": 200})
            found += ask(site, "GET", f"/api/v1/streams/{stream['stream_id']}/atoms?{asked}")["atoms"]
    return found


def written_by_person(site: Installation, person: str) -> list[dict[str, Any]]:
    """Return a person's items and tasks, which name their writers."""
    query = urlencode({"user_id": person, "limit": 200})
    own = [item for item in items_of(site, person) if not item["is_shared"]]
    return own + list(ask(site, "GET", f"/api/v1/entities?{query}")["entities"])


def written_in_shard(site: Installation, person: str) -> list[dict[str, Any]]:
    """Return the shared items that a person sees."""
    return [item for item in items_of(site, person) if item["is_shared"]]


def _listed_streams(site: Installation, person: str) -> Any:
    return ask(site, "GET", f"/api/v1/streams?{urlencode({'user_id': person, 'limit': 200})}")


def _over_mcp(site: Installation, person: str) -> Views:
    def tool(name: str, **arguments: Any) -> str:
        return _said(call(site, "tools/call", {"name": name, "arguments": arguments}, X_User_Id=person))

    def resource(uri: str) -> str:
        return _said(call(site, "resources/read", {"uri": uri}, X_User_Id=person))

    addresses = ("rem://moments", f"rem://users/{person}", f"rem://sessions/{HOME}/summary")
    return {
        "MCP context": tool("get_context", session_id=HOME, query=QUERY),
        "MCP search": tool("search_long_term_memory", query=QUERY, match_count=100),
        "MCP resources": "\n".join(map(resource, addresses)),
    }


def _said(result: Any) -> str:
    """Return the text of a tool's result or a resource, which is itself JSON."""
    parts = (result or {}).get("content") or (result or {}).get("contents") or []
    return "\n".join(text_of(_json(part.get("text", ""))) for part in parts)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _chat(site: Installation, person: str) -> str:
    """Return the memory that a model receives in a new conversation, which is deleted again."""
    body = {"model": "drill", "messages": [{"role": "user", "content": f"{QUERY} {person} asks."}]}
    ask(site, "POST", "/v1/chat/completions", body, **{"X-User-Id": person, "X-Session-Id": LOOKING})
    sent = site.sent_upstream(f"{person} asks.")
    _forget_looking(site, person)
    return text_of(json.loads(sent)["messages"]) if sent else ""


def _forget_looking(site: Installation, person: str) -> None:
    """Delete the conversation of a check. On a busy machine, it is stored a little later."""
    path = f"/api/v1/sessions/{LOOKING}?{urlencode({'user_id': person})}"
    wait_for("the conversation to be stored", lambda: site.request("DELETE", path)[0] == 204, STORED_SECONDS)


def _export(site: Installation, person: str) -> str:
    status, answer = answered(site, "GET", f"/api/v1/users/{person}/export")
    if status != 200:
        return ""
    with zipfile.ZipFile(io.BytesIO(answer)) as archive:
        files = [archive.read(name).decode() for name in archive.namelist() if name.endswith(".jsonl")]
    return "\n".join(text_of(_json(line)) for file in files for line in file.splitlines())
