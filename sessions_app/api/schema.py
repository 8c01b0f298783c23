"""Additions to the OpenAPI schema that drf-spectacular and drf-standardized-errors infer from the viewsets.

All errors share one component, `Error`. Errors that any call may return are in `components/responses`. A viewset's
`refuses` contains the other errors of its actions. The schema describes each of them with its code.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.plumbing import ResolvedComponent
from drf_spectacular.utils import OpenApiResponse
from drf_standardized_errors.openapi import AutoSchema
from rest_framework.fields import JSONField
from rest_framework.mixins import ListModelMixin
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
from sessions_app.api.pagination import RowPagination, rows_key_at
from sessions_app.refusals import Refusal

Described = dict[str, Any]

PERSON = "user_id"
WITHOUT_PERSON = "x-about-nobody"  # calls that never need a person
_VERBS = {"retrieve": "get", "partial_update": "update", "destroy": "delete"}
_ERROR_REF = {"$ref": "#/components/schemas/Error"}
_RETRY = {
    "Retry-After": {
        "required": True,
        "description": "Number of seconds to wait before a retry.",
        "schema": {"type": "integer", "minimum": 0},
    }
}
_ALLOW = {"Allow": {"required": True, "description": "The supported methods.", "schema": {"type": "string"}}}
_SCHEME = {"WWW-Authenticate": {"required": True, "schema": {"type": "string", "const": "Bearer"}}}

ERROR: Described = {
    "type": "object",
    "description": "The format of all errors.",
    "required": ["type", "errors"],
    "additionalProperties": False,
    "properties": {
        "type": {
            "type": "string",
            "enum": ["validation_error", "client_error", "server_error"],
            "description": "`validation_error`: the request is invalid, and `attr` names the field.",
        },
        "errors": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["code", "detail", "attr"],
                "additionalProperties": False,
                "properties": {
                    "code": {"type": "string", "description": "Stable code for programs."},
                    "detail": {"type": "string", "description": "Message for people."},
                    "attr": {
                        "type": ["string", "null"],
                        "description": "The field, with the index of its item, such as `messages.3.role`.",
                    },
                },
            },
        },
    },
}
# The schema of JSON values is deliberately incomplete. A complete one would be recursive, and client generators would
# omit the operations that use it. Rejected values have their own error codes.
JSON: Described = {"description": "Any JSON, nested at most 32 levels deep, without NUL characters."}
JSON_OBJECT: Described = JSON | {"type": "object", "propertyNames": {"pattern": TEXT}, "additionalProperties": {}}
JSON_REFUSALS = (
    "`text`: a NUL character or a lone surrogate in free-form JSON.",
    f"`depth`: free-form JSON that is nested deeper than {JSON_MAX_DEPTH} levels.",
    f"`size`: free-form JSON of more than {JSON_MAX_CHARS:,} characters.",
)
RESPONSES: dict[str, tuple[str, str, Described]] = {  # name, description and headers, by status
    "400": (
        "Invalid",
        "The input is invalid. Each error names its field.\n\n"
        f"`{CONTRADICTORY}`: values that are valid alone but contradict each other.\n\n" + "\n\n".join(JSON_REFUSALS),
        {},
    ),
    "401": (
        "NoKey",
        "`not_authenticated`: the key is missing; `authentication_failed`: the key is not valid.",
        _SCHEME,
    ),
    "403": ("NotAllowed", "`permission_denied`: the request needs a key with another scope.", {}),
    "404": ("NotFound", "`not_found`: the object doesn't exist, or the key may not see it.", {}),
    "405": ("NoSuchMethod", "`method_not_allowed`: the URL doesn't support this method.", _ALLOW),
    "406": ("NotAcceptable", "`not_acceptable`: the client accepts none of the available media types.", {}),
    "408": ("TooSlow", "`too_slow`: the body did not arrive in time.", {}),
    "411": ("NoLength", "`length_required`: the request has no Content-Length header.", {}),
    "413": ("TooLarge", "`too_large`: the body is larger than `API_MAX_BODY_BYTES`.", {}),
    "415": ("NotJson", "`unsupported_media_type`: the body is not `application/json`.", {}),
    "429": (
        "TooMany",
        "`throttled`: the key, or an IP address without a key, exceeds its rate limit; "
        "`budget_used_up`: the key or its application uses more than its share of server time while "
        "others call; `daily_limit`: a daily limit is reached.",
        _RETRY,
    ),
    "500": ("ServerError", "`error`: a server error, which is logged.", {}),
    "503": (
        "Unavailable",
        "`busy`, `unavailable`: the request can't be served right now. Nothing was changed, so you can retry.",
        _RETRY,
    ),
}


class ApiKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "sessions_app.api.authentication.ApiKeyAuthentication"
    name = "ApiKey"

    def get_security_definition(self, auto_schema: Any) -> Described:
        return {"type": "http", "scheme": "bearer", "description": "`Authorization: Bearer <key>`"}


class Schema(AutoSchema):
    view: Any  # an `ApiViewSet`

    def get_operation_id(self) -> str:
        """Return the operation's id: the resource and the verb, such as `sessions_get`."""
        action: str = self.view.action
        return f"{self.view.basename}_{_VERBS.get(action, action)}"

    def get_request_serializer(self) -> Any:
        return self.view.get_input_class() if self._has_body else None

    def get_override_parameters(self) -> list[Any]:
        query = None if self._has_body else self.view.get_input_class()
        return [query] if query else []

    def get_response_serializers(self) -> Any:
        """Return the serializers of the action's responses by status, without the errors that any call may get."""
        action: str = self.view.action
        answers = self.view.answers.get(action, self.view.get_serializer_class())
        if action == "destroy" and action not in self.view.answers:
            answers = {204: OpenApiResponse(description="Deleted.")}
        answers = answers if isinstance(answers, Mapping) else {200: answers}
        return {**answers, **refusal_responses(self.view.refuses.get(action, ()))}

    def _get_allowed_error_status_codes(self) -> list[str]:
        return list(RESPONSES)

    def _should_add_error_response(self, responses: Described, status_code: str) -> bool:
        """Return whether this error is possible. A list never returns 404, and a call without a body never 415."""
        if status_code == "404" and self._is_list_view():
            return "{" in self.path or "after" in self.view.get_input_class()().fields
        if status_code == "415" and self.get_request_serializer() is None:
            return False
        return status_code not in responses

    def _get_error_response_serializer(self, status_code: str) -> Any:
        return OpenApiResponse(_ERROR_REF, RESPONSES[status_code][1])

    def _get_response_for_code(self, serializer: Any, status_code: str, *args: Any, **kwargs: Any) -> Described:
        """Return the description of a response, or a reference to a shared error response."""
        if status_code not in RESPONSES:
            described: Described = super()._get_response_for_code(  # type: ignore[no-untyped-call]
                serializer, status_code, *args, **kwargs
            )
            return described
        name, text, headers = RESPONSES[status_code]
        error = {"description": serializer.description, "content": {"application/json": {"schema": _ERROR_REF}}}
        error |= {"headers": headers} if headers else {}
        if serializer.description != text:
            return error
        component = ResolvedComponent(name, ResolvedComponent.RESPONSE, error, name)  # type: ignore[no-untyped-call]
        self.registry.register_on_missing(component)
        reference: Described = component.ref
        return reference

    def _get_parameters(self) -> list[Described]:
        """Return the parameters, except query parameters that are also in the path."""
        found = super()._get_parameters()
        return [_parameter(one) for one in found if one["in"] == "path" or f"{{{one['name']}}}" not in self.path]

    def _is_list_view(self, serializer: Any = None) -> bool:
        return self.view.action == "list" and isinstance(self.view, ListModelMixin)

    def get_extensions(self) -> Described:
        return {} if self.view.needs_person else {WITHOUT_PERSON: True}

    def get_paginated_name(self, serializer_name: str) -> str:
        return f"{serializer_name.removesuffix('Answer').removesuffix('Row')}List"

    @property
    def _has_body(self) -> bool:
        return self.method in ("POST", "PATCH")

    def _get_paginator(self) -> Any:
        paginator = RowPagination()
        paginator.rows_key = rows_key_at(self.path)
        return paginator

    def _map_basic_serializer(self, serializer: Any, direction: str) -> Described:
        mapped: Described = super()._map_basic_serializer(serializer, direction)  # type: ignore[no-untyped-call]
        if isinstance(serializer, StrictSerializer):
            mapped |= {"additionalProperties": False} | serializer.rules
        return mapped

    def _map_serializer_field(self, field: Any, direction: str, bypass_extensions: bool = False) -> Described:
        if isinstance(field, JsonField):
            return deepcopy(JSON_OBJECT if field.is_object else JSON)
        mapped: Described = super()._map_serializer_field(  # type: ignore[no-untyped-call]
            field, direction, bypass_extensions
        )
        if isinstance(field, ListSerializer):
            mapped |= {name: limit for name, limit in _limits(field) if limit is not None}
        if isinstance(field, JSONField):
            mapped.pop("oneOf", None)  # null is valid JSON, so it would match both schemas of `oneOf`
        return mapped

    def _insert_field_validators(self, field: Any, schema: Described) -> None:
        super()._insert_field_validators(field, schema)  # type: ignore[no-untyped-call]
        if isinstance(field, Patterned):
            schema |= pattern_of(field)


def pattern_of(field: Patterned) -> Described:
    """Return the patterns that a field's texts must match and must not match."""
    refused = {"not": {"pattern": field.refused}} if field.refused else {}
    return {"pattern": field.pattern} | refused


def _limits(field: Any) -> Iterator[tuple[str, int | None]]:
    yield "minItems", field.min_length
    yield "maxItems", field.max_length


def refusal_responses(refuses: Sequence[type[Refusal]]) -> dict[int, OpenApiResponse]:
    """Describe refusals as error responses, by status."""
    texts: defaultdict[int, list[str]] = defaultdict(list)
    for refusal in refuses:
        common = RESPONSES.get(str(refusal.status), ("", "", {}))[1]
        texts[refusal.status] = texts[refusal.status] or ([common] if common else [])
        texts[refusal.status].append(f"`{refusal.code}`: {(refusal.__doc__ or '').splitlines()[0]}")
    return {status: OpenApiResponse(_ERROR_REF, "\n\n".join(lines)) for status, lines in texts.items()}


def complete(result: Described, generator: Any, request: Any, public: bool) -> Described:
    """A hook for drf-spectacular: add the component `Error`, and empty parameter lists where they are missing."""
    result["components"]["schemas"]["Error"] = ERROR
    for *_, operation in operations(result):
        operation.setdefault("parameters", [])
    return result


def operations(description: Described) -> Iterator[tuple[str, str, Described]]:
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def for_services(description: Described) -> Described:
    """Return the schema for service keys, where `user_id` is required. It is optional for users' keys."""
    schema = deepcopy(description)
    schemas = schema["components"]["schemas"]
    for _, _, operation in operations(schema):
        if WITHOUT_PERSON in operation:
            continue
        for parameter in operation["parameters"]:
            parameter["required"] = parameter.get("required", False) or parameter["name"] == PERSON
        if "requestBody" in operation:
            [content] = operation["requestBody"]["content"].values()
            body = _component(schemas, content["schema"])
            if PERSON in body["properties"]:
                operation["requestBody"]["required"] = True
                body["required"] = sorted({PERSON, *body.get("required", ())})
    return schema


def _parameter(parameter: Described) -> Described:
    """Add the constraints on the parameter's values in a URL."""
    schema = parameter["schema"]
    if parameter["in"] == "path" and schema.get("type") == "string" and "format" not in schema:
        return parameter | {"schema": schema | {"pattern": PUBLIC_ID, "minLength": 1, "maxLength": PUBLIC_ID_MAX}}
    if schema.get("type") == "array":
        return parameter | {"style": "form", "explode": False}
    return parameter


def _component(schemas: Described, schema: Described) -> Described:
    found: Described = schemas.get(schema.get("$ref", "").rsplit("/", 1)[-1], {})
    return found
