"""Random requests, generated from the site's schema. None may get a 5xx."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from drill.site import Site
from drill.trust.calls import MCP, Call, Operation, Schema, call, read_resource, resolved

SHOWN = 300  # characters of a request that failed
INTERNAL_ERROR = "-32603"  # MCP's error code

texts = st.text(max_size=60) | st.sampled_from(["", "\0", "\ud800", "%00", "../..", "'; --", "x" * 300, "ada", "bo"])
numbers = st.integers() | st.integers(-3, 300) | st.floats()
wild: SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)


@dataclass
class FuzzReport:
    """The result.

    Args:
        statuses: The number of responses by status.
        failures: The requests that got a 5xx, with their responses.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def requests(self) -> int:
        return self.statuses.total()

    def note(self, sent: Call, status: int, answer: str) -> None:
        """Count a response."""
        self.statuses[status] += 1
        if status >= 500 or (sent.path == MCP and INTERNAL_ERROR in answer):
            body = (sent.body or b"").decode(errors="replace")[:SHOWN]
            self.failures.append(f"{status}: {sent.operation.method} {sent.path[:SHOWN]} {body}")


def fuzz(
    site: Site,
    operations: Sequence[Operation],
    schemas: Mapping[str, Schema],
    keys: Sequence[str],
    ids: Mapping[str, Sequence[str]],
    *,
    requests: int,
    number: int,
) -> FuzzReport:
    """Send requests to every operation.

    Args:
        site: The site.
        operations, schemas: The contents of its schema.
        keys: Keys of all kinds, and none.
        ids: Existing ids, by the name of the parameter.
        requests: The total number of requests.
        number: The seed of the random requests.
    """
    found = FuzzReport()
    each = max(requests // (len(operations) + 1), 1)
    for strategy in [*(_calls(one, schemas, ids) for one in operations), texts.map(lambda uri: read_resource(uri))]:
        _send(site, strategy, keys, each, number, found)
    return found


def _send(
    site: Site, calls: SearchStrategy[Call], keys: Sequence[str], count: int, number: int, found: FuzzReport
) -> None:
    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(calls, st.sampled_from(keys))
    def send(one: Call, key: str) -> None:
        found.note(one, *one.send(site, key))

    send()


def _calls(
    operation: Operation, schemas: Mapping[str, Schema], ids: Mapping[str, Sequence[str]]
) -> SearchStrategy[Call]:
    path = st.fixed_dictionaries({name: _id(ids.get(name, ())) for name in operation.in_path})
    query = st.fixed_dictionaries(
        {}, optional={name: _values(schema, schemas, ids, name) for name, schema in operation.query.items()}
    )
    body: SearchStrategy[Any] = st.none()
    if operation.body is not None:
        right = _values(operation.body, schemas, ids)
        body = right if operation.tool else right | wild | st.binary(max_size=40)
    headers = st.fixed_dictionaries({}, optional={"X_User_Id": _header(ids), "X_Session_Id": _header(ids)})
    return st.builds(lambda p, q, b, h: call(operation, p, q, b, **h), path, query, body, headers)


def _id(known: Sequence[str]) -> SearchStrategy[str]:
    return st.sampled_from(list(known)) | texts if known else texts


def _header(ids: Mapping[str, Sequence[str]]) -> SearchStrategy[str]:
    return st.sampled_from(list(ids["user_id"])) | st.text("abyz09-._ßéñ", max_size=20)


def _values(
    schema: Schema, schemas: Mapping[str, Schema], ids: Mapping[str, Sequence[str]], name: str = ""
) -> SearchStrategy[Any]:
    """Return values that mostly match a schema, including existing ids. Some are arbitrary."""
    right = _right(resolved(schema, schemas), schemas, ids)
    known = st.sampled_from(list(ids[name])) if name in ids else st.nothing()
    return st.one_of(right, right, right, known, wild)


def _right(schema: Schema, schemas: Mapping[str, Schema], ids: Mapping[str, Sequence[str]]) -> SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema.get("type")
    if isinstance(kind, list):
        return st.one_of([_right(schema | {"type": one}, schemas, ids) for one in kind])
    if kind == "object" or "properties" in schema:
        return _objects(schema, schemas, ids)
    if kind == "array":
        return st.lists(_values(schema.get("items", {}), schemas, ids), max_size=4)
    simple: dict[Any, SearchStrategy[Any]] = {
        "string": _strings(schema),
        "integer": st.integers(schema.get("minimum"), schema.get("maximum")),
        "number": st.floats(schema.get("minimum"), schema.get("maximum")),
        "boolean": st.booleans(),
        "null": st.none(),
    }
    return simple.get(kind, wild)


def _objects(schema: Schema, schemas: Mapping[str, Schema], ids: Mapping[str, Sequence[str]]) -> SearchStrategy[Any]:
    properties = {name: _values(part, schemas, ids, name) for name, part in schema.get("properties", {}).items()}
    required = set(schema.get("required", ()))
    return st.fixed_dictionaries(
        {name: part for name, part in properties.items() if name in required},
        optional={name: part for name, part in properties.items() if name not in required},
    )


def _strings(schema: Schema) -> SearchStrategy[str]:
    form = schema.get("format")
    if form == "uuid":
        return st.uuids().map(str)
    if form == "date-time":
        return st.datetimes().map(lambda moment: f"{moment.isoformat()}Z") | texts
    return texts
