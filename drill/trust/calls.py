"""The operations in a site's schema, and calls to them."""

import http.client
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any
from urllib.parse import quote, urlencode
from zipfile import ZipFile, is_zipfile

from drill.site import Site

Schema = dict[str, Any]

TOO_MANY = 429
MCP, CHAT, RESPONSES = "/mcp", "/v1/chat/completions", "/v1/responses"
APPEND = "/api/v1/sessions/{session_id}/messages"
MCP_HEADERS = {"Accept": "application/json, text/event-stream"}
CHAT_BODY: Schema = {
    "type": "object",
    "required": ["messages"],
    "properties": {
        "model": {"type": "string"},
        "stream": {"type": "boolean"},
        "messages": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["role", "content"],
                "properties": {
                    "role": {"enum": ["user", "assistant", "system", "tool"]},
                    "content": {"type": "string"},
                    "tool_calls": {"type": "array", "items": {}},
                    "tool_call_id": {"type": "string"},
                },
            },
        },
    },
}
RESPONSES_BODY: Schema = {
    "type": "object",
    "required": ["input"],
    "properties": {
        "model": {"type": "string"},
        "stream": {"type": "boolean"},
        "input": {"type": "string"},
        "previous_response_id": {"type": "string"},
        "conversation": {"type": "string"},
    },
}


@dataclass(frozen=True)
class Operation:
    """An operation.

    Args:
        method, path: The path contains `{names}` of parameters.
        query: The schemas of the query parameters.
        body: The schema of the body, or None.
        tool: The name of the MCP tool. Blank for other operations.
    """

    method: str
    path: str
    query: Mapping[str, Schema] = field(default_factory=dict)
    body: Schema | None = None
    tool: str = ""

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.tool}".strip()

    @property
    def in_path(self) -> list[str]:
        """The names of the path parameters."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]


@dataclass(frozen=True)
class Call:
    """A request.

    Args:
        operation: The operation.
        path: The path with parameters filled in.
        body: The encoded body, or None.
        headers: The headers, in addition to the key.
    """

    operation: Operation
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def send(self, site: Site, key: str) -> tuple[int, str]:
        """Send it, and return the status and body of the response, or 599 without one.

        After a 429, wait and retry, because the rate limit says nothing about the request itself.
        """
        status, text, seconds = self._sent(site, key)
        while status == TOO_MANY:
            time.sleep(seconds)
            status, text, seconds = self._sent(site, key)
        return status, text

    def _sent(self, site: Site, key: str) -> tuple[int, str, int]:
        """Send it once. Return the status and body of the response, and the seconds to wait before a retry."""
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"} | dict(self.headers)
        connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
        try:
            connection.request(self.operation.method, self.path, self.body, headers)
            answer = connection.getresponse()
            return answer.status, text_of(answer.read()), int(answer.headers.get("Retry-After", 1))
        except (OSError, http.client.HTTPException) as error:
            return 599, type(error).__name__, 0
        finally:
            connection.close()


def text_of(data: bytes) -> str:
    """Return the text of a response. For a zip, return the text of its files."""
    if not is_zipfile(BytesIO(data)):
        return data.decode(errors="replace")
    with ZipFile(BytesIO(data)) as archive:
        return "\n".join(archive.read(name).decode() for name in archive.namelist())


def call(operation: Operation, path: Mapping[str, str], query: Any, body: Any, **headers: str) -> Call:
    """Fill in the parameters of an operation.

    Args:
        operation: The operation.
        path: The values of path parameters by name.
        query: The values of query parameters by name.
        body: Any JSON, or bytes that may not be JSON. None for no body.
        headers: The headers in addition to the key, with `_` for `-`.
    """
    address = operation.path
    for name, value in path.items():
        address = address.replace("{" + name + "}", quote(value, safe="", errors="replace"))
    if query:
        address += "?" + urlencode(query, errors="replace", doseq=True)
    if operation.tool:
        body = _rpc("tools/call", {"name": operation.tool, "arguments": body})
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Call(operation, address, data, (MCP_HEADERS if address == MCP else {}) | named)


def read_resource(uri: str, **headers: str) -> Call:
    """Read a resource over MCP."""
    return call(Operation("POST", MCP), {}, {}, _rpc("resources/read", {"uri": uri}), **headers)


def operations(site: Site) -> tuple[list[Operation], dict[str, Schema]]:
    """Return the operations of the site, and the schemas that they refer to."""
    status, text = site.request("GET", "/api/v1/schema?format=json")
    if status != 200:
        raise RuntimeError(f"The site's schema returned {status}.")
    description = json.loads(text)
    found = [
        _operation(method.upper(), path, details)
        for path, methods in description["paths"].items()
        for method, details in methods.items()
        if path.startswith("/api/")
    ]
    chats = [Operation("POST", CHAT, body=CHAT_BODY), Operation("POST", RESPONSES, body=RESPONSES_BODY)]
    return [*found, *_tools(site), *chats], description["components"]["schemas"]


def _operation(method: str, path: str, details: Schema) -> Operation:
    query = {one["name"]: one.get("schema", {}) for one in details.get("parameters", ()) if one["in"] == "query"}
    content = details.get("requestBody", {}).get("content", {})
    return Operation(method, path, query, content["application/json"]["schema"] if content else None)


def _tools(site: Site) -> list[Operation]:
    headers = MCP_HEADERS | {"X-User-Id": "ada"}
    _, text = site.request("POST", MCP, _rpc("tools/list", {}), headers=headers)
    answer = json.loads(text[text.index(b"{") :].split(b"\r\n")[0])
    return [Operation("POST", MCP, body=tool["inputSchema"], tool=tool["name"]) for tool in answer["result"]["tools"]]


def _rpc(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def least(schema: Schema, schemas: Mapping[str, Schema]) -> Any:
    """Return the smallest value that matches a schema."""
    schema = resolved(schema, schemas)
    if "default" in schema or "enum" in schema:
        return schema.get("default", schema.get("enum", [None])[0])
    kind = schema.get("type")
    if kind == "object" or "properties" in schema:
        properties = schema.get("properties", {})
        return {name: least(properties[name], schemas) for name in schema.get("required", ()) if name in properties}
    if kind == "array":
        return [least(schema.get("items", {}), schemas)] * max(schema.get("minItems", 0), 1)
    return {"integer": schema.get("minimum", 1), "number": 1.0, "boolean": False}.get(str(kind), "text")


def resolved(schema: Schema, schemas: Mapping[str, Schema]) -> Schema:
    """Follow a reference, and choose the first of several alternatives."""
    while True:
        ways = next((schema[name] for name in ("allOf", "oneOf", "anyOf") if name in schema), None)
        if "$ref" in schema:
            schema = schemas[schema["$ref"].rsplit("/", 1)[1]]
        elif ways:
            schema = ways[0]
        else:
            return schema
