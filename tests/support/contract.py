"""Compares responses of REST and the chat endpoint in tests with the OpenAPI schema."""

import json
import re
from functools import cache
from threading import Lock
from typing import Any

import jsonschema_rs
from django.urls import Resolver404, resolve
from drf_spectacular.generators import SchemaGenerator

PREFIX, CHAT = "/api/v1/", "/v1/"
_making = Lock()


def check(method: str, path: str, response: Any) -> None:
    """Fail if a response doesn't match the schema: its status, type, headers or body.

    Args:
        method: The method of the request.
        path: The path of the request, without its query.
        response: The response of Django's test client or of `httpx2`.
    """
    answers = _answers(method, path)
    status = str(response.status_code)
    told = f"{method} {path} returned {status}"
    assert {status, "default"} & {*answers}, f"{told}, but the schema lists only {', '.join(answers)}"
    answer = answers.get(status) or answers["default"]
    for name, header in answer.get("headers", {}).items():
        value = response.headers.get(name)
        assert value is not None or not header.get("required"), f"{told} without {name}"
        if value is not None and header["schema"]["type"] == "integer":
            assert int(value) >= header["schema"]["minimum"], f"{told} with {name}: {value}"
    content = answer.get("content", {})
    kind = response.headers.get("Content-Type", "").partition(";")[0]
    assert kind in content or not (content or response.content), f"{told} as {kind!r}"
    if kind == "application/json":
        found = _validator(json.dumps(content[kind]["schema"])).iter_errors(response.json())
        errors = [f"{error.instance_path}: {error.message[:300]}" for error in found]
        assert not errors, f"{told}, but {'; '.join(errors)}"


def description() -> dict[str, Any]:
    """Return the schema. Concurrent callers wait, because drf-spectacular loads its parts only once."""
    with _making:
        return _description()


@cache
def _description() -> dict[str, Any]:
    described: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return described


def _answers(method: str, path: str) -> dict[str, Any]:
    """Return the possible responses of a call by status. For an unknown call, return the common errors."""
    operation = description()["paths"].get(_template(path), {}).get(method.lower())
    if operation is None:
        error = _error("OpenAIError" if path.startswith(CHAT) else "Error")
        return {status: {"content": error} for status in ("400", "401", "403", "404", "405", "411", "413", "503")}
    return {status: _followed(answer) for status, answer in operation["responses"].items()}


def _template(path: str) -> str:
    """Return the path with placeholders, as in the schema. Blank for an unknown path."""
    if path.startswith(CHAT):  # not one of Django's URLs
        return path
    try:
        return "/" + re.sub(r"<\w+:(\w+)>", r"{\1}", resolve(path).route)
    except Resolver404:
        return ""


def _error(component: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{component}"}}}


def _followed(part: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in part:
        return part
    found: dict[str, Any] = description()["components"]["responses"][part["$ref"].rsplit("/", 1)[1]]
    return found


@cache
def _validator(schema: str) -> Any:
    whole = json.loads(schema) | {"components": json.loads(json.dumps(description()["components"], default=str))}
    return jsonschema_rs.validator_for(whole, validate_formats=True)
