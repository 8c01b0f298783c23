"""Compares each REST response in tests with the OpenAPI schema."""

import json
import re
from functools import cache
from threading import Lock
from typing import Any

import jsonschema_rs
from django.urls import Resolver404, resolve
from drf_spectacular.generators import SchemaGenerator

PREFIX = "/api/v1/"
_making = Lock()


def check(method: str, path: str, response: Any) -> None:
    """Fail if a response doesn't match the schema: its status, type, headers or body.

    Args:
        method: The method of the request.
        path: The path of the request, without its query.
        response: The response of Django's test client.
    """
    answers = _answers(method, path)
    status = str(response.status_code)
    told = f"{method} {path} returned {status}"
    assert status in answers, f"{told}: described are {', '.join(answers)}"
    answer = answers[status]
    for name, header in answer.get("headers", {}).items():
        assert not header["required"] or response.has_header(name), f"{told} without {name}"
        if response.has_header(name) and header["schema"]["type"] == "integer":
            assert int(response[name]) >= header["schema"]["minimum"], f"{told} with {name}: {response[name]}"
    content = answer.get("content", {})
    kind = response.get("Content-Type", "").partition(";")[0]
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
    described = description()
    try:
        route = resolve(path).route
    except Resolver404:
        route = ""
    template = "/" + re.sub(r"<\w+:(\w+)>", r"{\1}", route)
    operation = described["paths"].get(template, {}).get(method.lower())
    if operation is None:
        return {status: {"content": _error()} for status in ("400", "401", "403", "404", "405", "411", "413", "503")}
    return {status: _followed(answer) for status, answer in operation["responses"].items()}


def _error() -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}


def _followed(part: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in part:
        return part
    found: dict[str, Any] = description()["components"]["responses"][part["$ref"].rsplit("/", 1)[1]]
    return found


@cache
def _validator(schema: str) -> Any:
    whole = json.loads(schema) | {"components": json.loads(json.dumps(description()["components"], default=str))}
    return jsonschema_rs.validator_for(whole, validate_formats=True)
