"""The OpenAPI description where it can't be found out from the views: keys, errors, and what fields take exactly.

Every error is one component, `Error`, and what any call may be refused with stands once in `components/responses`. A
call's own refusals are named where it is declared (`operation(refuses=…)`) and described with their codes.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiResponse
from rest_framework.fields import JSONField
from rest_framework.serializers import ListSerializer

from sessions_app.api.fields import (
    CONTRADICTORY,
    JSON_MAX_CHARS,
    JSON_MAX_DEPTH,
    PUBLIC_ID,
    PUBLIC_ID_MAX,
    TEXT,
    JsonField,
    Patterned,
    StrictSerializer,
)
from sessions_app.api.pages import PageAnswer
from sessions_app.refusals import Refusal

Described = dict[str, Any]

PERSON = "user_id"
ABOUT_NOBODY = "x-about-nobody"  # a call that need not name the person, whatever the key
_VERBS = {"GET": "get", "POST": "create", "PATCH": "update", "DELETE": "delete"}
_ERROR_REF = {"$ref": "#/components/schemas/Error"}
_RETRY = {
    "Retry-After": {
        "required": True,
        "description": "Seconds after which to try again.",
        "schema": {"type": "integer", "minimum": 0},
    }
}
_ALLOW = {"Allow": {"required": True, "description": "The methods that it has.", "schema": {"type": "string"}}}
_SCHEME = {"WWW-Authenticate": {"required": True, "schema": {"type": "string", "const": "Bearer"}}}

ERROR: Described = {
    "type": "object",
    "description": "The shape of every error.",
    "required": ["type", "errors"],
    "additionalProperties": False,
    "properties": {
        "type": {
            "type": "string",
            "enum": ["validation_error", "client_error", "server_error"],
            "description": "`validation_error`: what was sent doesn't fit, and `attr` says where.",
        },
        "errors": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["code", "detail", "attr"],
                "additionalProperties": False,
                "properties": {
                    "code": {"type": "string", "description": "For programs; stable."},
                    "detail": {"type": "string", "description": "For people."},
                    "attr": {
                        "type": ["string", "null"],
                        "description": "The item and the field, such as `messages.3.role`.",
                    },
                },
            },
        },
    },
}
# Not said to the last character, for then it refers to itself, which generators of clients can't follow: they left out
# the calls that take any. What is refused has codes of its own.
JSON: Described = {"description": "Any JSON, nested at most 32 levels deep, without NUL characters."}
JSON_OBJECT: Described = JSON | {"type": "object", "propertyNames": {"pattern": TEXT}, "additionalProperties": {}}
JSON_REFUSALS = (
    "`text`: a NUL character or half a surrogate pair in free-form JSON.",
    f"`depth`: free-form JSON that is nested deeper than {JSON_MAX_DEPTH} levels.",
    f"`size`: free-form JSON of more than {JSON_MAX_CHARS:,} characters.",
)
RESPONSES: dict[str, tuple[str, str, Described]] = {  # by status: its name, what it means, its headers
    "400": (
        "Invalid",
        "What was sent doesn't fit: each error names its field.\n\n"
        f"`{CONTRADICTORY}`: values that fit by themselves, and not together.\n\n" + "\n\n".join(JSON_REFUSALS),
        {},
    ),
    "401": ("NoKey", "`not_authenticated`: no key; `authentication_failed`: none that is valid.", _SCHEME),
    "403": ("NotAllowed", "`permission_denied`: the key's scope is less than this needs.", {}),
    "404": ("NotFound", "`not_found`: there is no such thing, or the key may not see it.", {}),
    "405": ("NoSuchMethod", "`method_not_allowed`: the address has other methods.", _ALLOW),
    "406": ("NotAcceptable", "`not_acceptable`: the answer is of none of the types that the client accepts.", {}),
    "408": ("TooSlow", "`too_slow`: the body did not come in time.", {}),
    "411": ("NoLength", "`length_required`: the body is sent in chunks, without its length.", {}),
    "413": ("TooLarge", "`too_large`: the body is over `API_MAX_BODY_BYTES`.", {}),
    "415": ("NotJson", "`unsupported_media_type`: the body is not `application/json`.", {}),
    "429": (
        "TooMany",
        "`throttled`: the key, or an address without one, makes more requests a second than it may; `budget_used_up`: "
        "the key or its application occupies threads for longer than it may while others call; `daily_limit`: what a "
        "limit allows is used up for today.",
        _RETRY,
    ),
    "500": ("ServerError", "`error`: a mistake of the server's own, which is logged.", {}),
    "503": ("Unavailable", "`busy`, `unavailable`: not now. Nothing was changed; a later try may succeed.", _RETRY),
}


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Bearer keys."""

    target_class = "sessions_app.api.authentication.ApiKeyAuthentication"
    name = "ApiKey"

    def get_security_definition(self, auto_schema: Any) -> Described:
        return {"type": "http", "scheme": "bearer", "description": "`Authorization: Bearer <key>`"}


class Schema(AutoSchema):
    """The description of a call: of what it takes, exactly that."""

    def get_operation_id(self) -> str:
        """Return what is done and to what, such as `sessions_get`; a call that does something else says so itself."""
        nouns = [part for part in self.path.split("/") if part and not part.startswith("{")]
        verb = "list" if self._answers_page() else _VERBS[self.method]
        return f"{nouns[-1]}_{verb}"

    def _answers_page(self) -> bool:
        answers: Any = self.get_response_serializers()
        return isinstance(answers, dict) and any(
            isinstance(answer, type) and issubclass(answer, PageAnswer) for answer in answers.values()
        )

    def _map_basic_serializer(self, serializer: Any, direction: str) -> Described:
        mapped: Described = super()._map_basic_serializer(serializer, direction)  # type: ignore[no-untyped-call]
        if isinstance(serializer, StrictSerializer):
            mapped |= {"additionalProperties": False} | serializer.rules
        return mapped

    def _map_serializer_field(self, field: Any, direction: str, bypass_extensions: bool = False) -> Described:
        if isinstance(field, JsonField):
            return deepcopy(JSON_OBJECT if field.is_object else JSON)
        mapped: Described = super()._map_serializer_field(field, direction, bypass_extensions)  # type: ignore[no-untyped-call]
        if isinstance(field, ListSerializer):
            mapped |= {name: limit for name, limit in _limits(field) if limit is not None}
        if isinstance(field, JSONField):
            mapped.pop("oneOf", None)  # any JSON, or null: null is JSON, and of two that fit `oneOf` takes neither
        return mapped

    def _insert_field_validators(self, field: Any, schema: Described) -> None:
        super()._insert_field_validators(field, schema)  # type: ignore[no-untyped-call]
        if isinstance(field, Patterned):
            schema |= pattern_of(field)


def pattern_of(field: Patterned) -> Described:
    """Return what texts a field takes."""
    refused = {"not": {"pattern": field.refused}} if field.refused else {}
    return {"pattern": field.pattern} | refused


def _limits(field: Any) -> Iterator[tuple[str, int | None]]:
    yield "minItems", field.min_length
    yield "maxItems", field.max_length


def refused(refuses: Sequence[type[Refusal]]) -> dict[int, OpenApiResponse]:
    """Describe the refusals of a call, by status."""
    codes: defaultdict[int, list[str]] = defaultdict(list)
    for refusal in refuses:
        codes[refusal.status].append(f"`{refusal.code}`: {(refusal.__doc__ or '').splitlines()[0]}")
    return {status: OpenApiResponse(_ERROR_REF, "\n\n".join(lines)) for status, lines in codes.items()}


def complete(result: Described, generator: Any, request: Any, public: bool) -> Described:
    """Describe what holds for all calls alike: a hook of drf-spectacular's."""
    components = result["components"]
    components["schemas"]["Error"] = ERROR
    components["responses"] = {name: _response(text, headers) for name, text, headers in RESPONSES.values()}
    for path, method, operation in operations(result):
        operation["parameters"] = [
            _parameter(one)
            for one in operation.get("parameters", ())
            if one["in"] == "path" or f"{{{one['name']}}}" not in path  # which names it already
        ]
        _answer(operation, [status for status in RESPONSES if _may_be(status, path, method, operation)])
    _link(result)
    return result


def operations(description: Described) -> Iterator[tuple[str, str, Described]]:
    """Yield path, method and description of each call."""
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def for_services(description: Described) -> Described:
    """Return the description for keys that have to name the person; others may."""
    told = deepcopy(description)
    schemas = told["components"]["schemas"]
    for _, _, operation in operations(told):
        if ABOUT_NOBODY in operation:
            continue
        for parameter in operation["parameters"]:
            parameter["required"] = parameter.get("required", False) or parameter["name"] == PERSON
        if "requestBody" in operation:
            [content] = operation["requestBody"]["content"].values()
            body = _component(schemas, content["schema"])
            if PERSON in body["properties"]:
                operation["requestBody"]["required"] = True
                body["required"] = sorted({PERSON, *body.get("required", ())})
    return told


def _parameter(parameter: Described) -> Described:
    """Describe exactly what an address takes."""
    schema = parameter["schema"]
    if parameter["in"] == "path" and schema.get("type") == "string" and "format" not in schema:
        return parameter | {"schema": schema | {"pattern": PUBLIC_ID, "minLength": 1, "maxLength": PUBLIC_ID_MAX}}
    if schema.get("type") == "array":
        return parameter | {"style": "form", "explode": False}
    return parameter


def _may_be(status: str, path: str, method: str, operation: Described) -> bool:
    """Return whether a call may be refused so: a list is not missing but empty, and no body has no wrong type."""
    if status == "404":
        is_list = any(parameter["name"] == "offset" for parameter in operation["parameters"])
        return not is_list or "{" in path or method != "get"
    return status != "415" or "requestBody" in operation


def _answer(operation: Described, statuses: Sequence[str]) -> None:
    """Add what a call may be refused with to its answers."""
    answers = operation["responses"]
    for status in statuses:
        name, text, headers = RESPONSES[status]
        if status in answers:
            answers[status] = _response(f"{text}\n\n{answers[status]['description']}", headers)
        else:
            answers[status] = {"$ref": f"#/components/responses/{name}"}
    operation["responses"] = dict(sorted(answers.items()))


def _link(result: Described) -> None:
    """Link each call that answers an id to those that need it, about the same person."""
    schemas = result["components"]["schemas"]
    calls = [one for one in operations(result) if _may_name_person(schemas, one[2])]
    ids = {one["name"] for *_, call in calls for one in call["parameters"] if one["in"] == "path"} - {PERSON}
    for path, method, operation in calls:
        person = f"$request.query.{PERSON}" if method == "get" else f"$request.body#/{PERSON}"
        for status, answer in operation["responses"].items():
            found = dict(_ids(schemas, answer)) if status.startswith("2") else {}
            links = {
                f"{taker['operationId']}_of_{name}": _linked(taker, {name: f"$response.body#{pointer}", PERSON: person})
                for name, pointer in found.items()
                for *_, taker in calls
                if name in ids and f"{{{name}}}" not in path
                if taker is not operation and name in _needed(schemas, taker)
            }
            answer |= {"links": links} if links else {}


def _may_name_person(schemas: Described, operation: Described) -> bool:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    named = {parameter["name"] for parameter in operation["parameters"]}
    return PERSON in named.union(_component(schemas, body).get("properties", ()))


def _needed(schemas: Described, operation: Described) -> set[str]:
    """Return the names of what a call has to be given, but for the person."""
    named = {parameter["name"] for parameter in operation["parameters"] if parameter.get("required")}
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    return named.union(_component(schemas, body).get("required", ())) - {PERSON}


def _ids(schemas: Described, answer: Described) -> Iterator[tuple[str, str]]:
    """Yield the texts that an answer or its first item certainly has, and where."""
    whole = _component(schemas, answer.get("content", {}).get("application/json", {}).get("schema", {}))
    for name, part in whole.get("properties", {}).items():
        if part.get("type") == "string":
            yield name, f"/{name}"
        for inner, its in _component(schemas, part.get("items", {})).get("properties", {}).items():
            if its.get("type") == "string":
                yield inner, f"/{name}/0/{inner}"


def _component(schemas: Described, schema: Described) -> Described:
    """Return the component that a schema refers to; nothing where it refers to none."""
    found: Described = schemas.get(schema.get("$ref", "").rsplit("/", 1)[-1], {})
    return found


def _linked(taker: Described, values: dict[str, str]) -> Described:
    """Describe a link to a call, with the values that it takes: in its address where it can, or else in its body."""
    link: Described = {"operationId": taker["operationId"]}
    in_address = {parameter["name"] for parameter in taker["parameters"]}
    parameters = {name: value for name, value in values.items() if name in in_address}
    rest = {name: value for name, value in values.items() if name not in in_address}
    link |= {"parameters": parameters} if parameters else {}
    return link | ({"requestBody": rest} if rest and "requestBody" in taker else {})


def _response(description: str, headers: Described) -> Described:
    return {"description": description, "content": {"application/json": {"schema": _ERROR_REF}}} | (
        {"headers": headers} if headers else {}
    )
