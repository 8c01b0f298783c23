"""Requests for another person's data by every operation. Nothing may be returned or changed."""

import json
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drill.site import Site
from drill.trust.calls import APPEND, CHAT, MCP, RESPONSES, Call, Operation, Schema, call, least, read_resource

OWN, FOREIGN = "quincemarmalade", "walnutliqueur"  # a word in all of Ada's texts, and one in all of Bo's
OF_FIRST = "mulberrycordial"  # a word that only the first application's people may read
TOPIC = "the tree behind the barn"  # the subject of both people's texts, and of all calls
UNKNOWN = "5f0c6a52-0b1e-4a4e-9d0a-0123456789ab"
ALLOWED = 400  # from this status on, responses must be the same for foreign and unknown ids

STATE = """
SELECT md5(string_agg(line, '|' ORDER BY line)) FROM (
    SELECT 'm' || m.id || content || m.kind AS line FROM sessions_app_message m WHERE user_id = %s
    UNION ALL SELECT 'o' || id || summary || key FROM moments_app_moment WHERE user_id = %s
    UNION ALL SELECT 's' || id || title || session_id FROM sessions_app_session WHERE user_id = %s
    UNION ALL SELECT 'p' || id || summary FROM sessions_app_userprofile WHERE id = %s
    UNION ALL SELECT 'a' || id || content || state || value FROM moments_app_memoryatom WHERE user_id = %s
    UNION ALL SELECT 'c' || id || COALESCE(undone_at::text, '') FROM moments_app_correction WHERE user_id = %s
    UNION ALL SELECT 'q' || id || question || expected FROM moments_app_probe WHERE user_id = %s
    UNION ALL SELECT 'r' || id || COALESCE(undone_at::text, '') FROM moments_app_retraction WHERE user_id = %s
) lines
"""


@dataclass
class ProbeReport:
    """The result.

    Args:
        probes: The number of calls.
        leaks: Data that was returned or changed, and responses that differ for foreign and unknown ids.
    """

    probes: int = 0
    leaks: list[str] = field(default_factory=list)

    def __add__(self, other: "ProbeReport") -> "ProbeReport":
        return ProbeReport(self.probes + other.probes, self.leaks + other.leaks)


@dataclass(frozen=True)
class ForeignCaller:
    """A caller who isn't Bo.

    Args:
        key: The caller's key.
        who: The caller's fields in each call.
        is_bound: Whether paths of other people must fail, because the key is a user's, or of another application.
        is_of_other: Whether the key belongs to another application than Bo's.
    """

    key: str
    who: Mapping[str, str]
    is_bound: bool
    is_of_other: bool = False

    def may_not_read(self, text: str) -> bool:
        """Return whether a text contains words that the caller may not read."""
        return FOREIGN in text or (self.is_of_other and OF_FIRST in text)


class Upstream:
    """Observes requests to models. None may contain texts of both people."""

    def __init__(self) -> None:
        self.leaks: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, body: str) -> None:
        if OWN in body and FOREIGN in body:
            with self._lock:
                self.leaks.append("A model was sent words of both persons.")


def probe(
    site: Site,
    operations: Sequence[Operation],
    schemas: Mapping[str, Schema],
    callers: Sequence[ForeignCaller],
    foreign: Mapping[str, Sequence[str]],
    bo: int,
) -> ProbeReport:
    """Call all operations.

    Args:
        site: A site with similar data of Ada and Bo.
        operations, schemas: The contents of its schema.
        callers: Callers who aren't Bo.
        foreign: Bo's ids, by the name of the parameter.
        bo: Bo's primary key.
    """
    found = ProbeReport()
    before = _state(site, bo)
    for caller in callers:
        for operation in operations:
            for pair in _pairs(operation, schemas, caller, foreign):
                _compare(site, caller, *pair, found)
        for uri in _addresses(foreign):
            _compare(site, caller, read_resource(uri, **_named(caller)), None, found)
    if _state(site, bo) != before:
        found.leaks.append("Something of Bo's was changed.")
    return found


IMPORTED = """
SELECT count(*) FROM sessions_app_message m
JOIN sessions_app_userprofile p ON p.id = m.user_id JOIN sessions_app_application a ON a.id = p.application_id
WHERE p.user_id = %s AND a.name = %s AND m.external_id = 'i1'
"""


def _state(site: Site, bo: int) -> list[tuple[Any, ...]]:
    return site.rows(STATE, *[bo] * STATE.count("%s"))


READABLE = """
SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
AND has_table_privilege('memory_request', oid, 'SELECT') ORDER BY 1
"""
ENTER = """
SELECT set_config('memory.user_pk', %s, true), set_config('memory.application', %s, true),
    set_config('role', 'memory_request', true)
"""


def without_filters(site: Site, bo: int) -> ProbeReport:
    """Read whole tables as requests of everyone except Bo, as if the code had forgotten its filters.

    None of Bo's data is released, so no one may read it.
    """
    found = ProbeReport()
    [[bos]] = site.rows("SELECT application_id::text FROM sessions_app_userprofile WHERE id = %s", bo)
    people = site.rows("SELECT id::text, application_id::text FROM sessions_app_userprofile WHERE id <> %s", bo)
    nobody = [("", application) for application in {application for _, application in people}]
    tables = [name for (name,) in site.rows(READABLE)]
    for pk, application in [*people, *nobody]:
        reader = ForeignCaller("", {}, is_bound=True, is_of_other=application != bos)
        with site.connect() as connection, connection.transaction():
            connection.execute(ENTER, [pk, application])
            for table in tables:
                rows = connection.execute(f"SELECT row_to_json(t)::text FROM {table} t").fetchall()
                found.probes += 1
                if any(reader.may_not_read(text) for (text,) in rows):
                    found.leaks.append(f"{table}: Bo's words are read as {pk or 'nobody'} of {application}.")
    return found


def imported(site: Site, into: str, bo: int) -> ProbeReport:
    """Import a file with the names of Bo and his session into another application, twice. His data must not change."""
    named = {"user_id": "bo", "session_id": "bo-own", "external_id": "i1", "role": "user"}
    before = _state(site, bo)
    found = ProbeReport()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sessions.jsonl"
        file.write_text(json.dumps(named | {"content": f"{OWN}: what {TOPIC} is to somebody else."}))
        for _ in range(2):
            site.manage("import_sessions", str(file), "--application", into)
            found.probes += 1
            if (stored := site.rows(IMPORTED, "bo", into)) != [(1,)]:
                found.leaks.append(f"import_sessions into {into} stored {stored[0][0]} messages, not 1.")
    if _state(site, bo) != before:
        found.leaks.append(f"import_sessions into {into} changed something of Bo's.")
    return found


def operators_pages(site: Site, person: str, of: str, operates_in: str) -> ProbeReport:
    """Open all pages about a person as an operator who is limited to another application."""
    asked = f"from drill.trust.operator_pages import probe; probe{(person, of, operates_in, FOREIGN, TOPIC)!r}"
    found = json.loads(site.manage("shell", "-v", "0", "-c", asked).splitlines()[-1])
    return ProbeReport(
        found["probes"], [f"{url}: Bo's words are shown to a limited operator." for url in found["leaks"]]
    )


def _pairs(
    operation: Operation, schemas: Mapping[str, Schema], caller: ForeignCaller, foreign: Mapping[str, Sequence[str]]
) -> Iterator[tuple[Call, Call | None]]:
    """Yield calls with each foreign id, and the same calls with an unknown id."""
    if "user_id" in operation.in_path and not caller.is_bound:
        return  # a service key may name any person
    names = [name for name in [*operation.in_path, *_asked(operation, schemas)] if name in foreign]
    if not names:
        yield _filled(operation, schemas, caller, {}), None
    for name in names:
        for value in foreign[name]:
            unknown = _filled(operation, schemas, caller, {name: UNKNOWN})
            yield _filled(operation, schemas, caller, {name: value}), unknown


def _asked(operation: Operation, schemas: Mapping[str, Schema]) -> list[str]:
    """Return the names of ids in the query and the body, except the caller's own."""
    body = operation.body or {}
    properties = (schemas[body["$ref"].rsplit("/", 1)[1]] if "$ref" in body else body).get("properties", {})
    return [name for name in [*operation.query, *properties] if name not in ("user_id", "name")]


def _filled(operation: Operation, schemas: Mapping[str, Schema], caller: ForeignCaller, ids: Mapping[str, str]) -> Call:
    """Fill in an operation correctly, except for the ids, and search for Bo's topic."""
    path = {name: ids.get(name, UNKNOWN) for name in operation.in_path}
    sent = {"query": TOPIC, "text": TOPIC, **caller.who, **ids}
    query = {name: sent[name] for name in operation.query if name in sent}
    body: Any = None
    if operation.body is not None:
        body = least(operation.body, schemas)
        names = {"user_id", *_asked(operation, schemas)}
        body |= {name: value for name, value in sent.items() if name in names}
    if operation.path == APPEND and operation.method == "POST":
        body["messages"] = [{"role": "assistant", "content": f"That is all of {TOPIC}."}]
    if operation.path == RESPONSES:
        body = {"model": "drill", "input": f"What of {TOPIC}?", "previous_response_id": "drill"}
    if operation.path == CHAT:
        body = {"model": "drill", "messages": [{"role": "user", "content": f"What of {TOPIC}?"}]}
    return call(operation, path, query, body, **_named(caller, ids.get("session_id", "")))


def _named(caller: ForeignCaller, session: str = "") -> dict[str, str]:
    """Return the headers that name a person and a conversation for MCP and chat."""
    person = {"X_User_Id": caller.who["user_id"]} if "user_id" in caller.who else {}
    return person | {"X_Session_Id": session or "own"}


def _addresses(foreign: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield "rem://users/bo"
    yield from (f"rem://moments/key/{key}" for key in foreign.get("key", ()))
    for session in foreign.get("session_id", ()):
        yield f"rem://sessions/{session}/summary"
        yield f"rem://sessions/{session}/messages/0"


def _compare(site: Site, caller: ForeignCaller, sent: Call, unknown: Call | None, found: ProbeReport) -> None:
    status, answer = sent.send(site, caller.key)
    found.probes += 1
    if caller.may_not_read(answer):
        found.leaks.append(f"{sent.operation} {sent.path} to {dict(caller.who)}: Bo's words are in the answer.")
    if unknown is None or sent.path == MCP:
        return
    other, _ = unknown.send(site, caller.key)
    found.probes += 1
    if status != other and max(status, other) >= ALLOWED:
        found.leaks.append(f"{sent.operation} {sent.path}: {status} for Bo's, {other} for an unknown id.")
