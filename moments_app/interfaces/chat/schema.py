"""The chat endpoint in the OpenAPI schema. Starlette serves it, so drf-spectacular doesn't find it.

The schema describes what the platform reads and adds. All other fields belong to OpenAI's API and the upstream.
"""

from typing import Any

from sessions_app.api.schema import WITHOUT_PERSON, Described

ERROR = "OpenAIError"
_JSON = {"application/json": {"schema": {"type": "object", "additionalProperties": True}}}
_ID = {"type": "string", "minLength": 1, "maxLength": 255}

COMPONENTS: Described = {
    ERROR: {
        "type": "object",
        "description": "The format of errors of the chat endpoint. Errors of the model endpoint are passed on "
        "unchanged, and usually have this format.",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "code"],
                "properties": {
                    "message": {"type": "string", "description": "Message for people."},
                    "type": {"type": "string", "description": "`invalid_request_error` or `api_error`."},
                    "code": {"type": ["string", "null"], "description": "Stable code for programs."},
                },
            }
        },
    },
    "ChatCompletionInput": {
        "type": "object",
        "required": ["messages"],
        "additionalProperties": True,
        "properties": {
            "messages": {"type": "array", "minItems": 1, "items": {"type": "object", "additionalProperties": True}},
            "user": _ID | {"description": "The person, if `X-User-Id` is not sent."},
            "stream": {"type": "boolean", "description": "Send the answer as server-sent events."},
        },
    },
    "ResponseInput": {
        "type": "object",
        "required": ["input"],
        "additionalProperties": True,
        "properties": {
            "input": {
                "oneOf": [
                    {"type": "string"},
                    {"type": "array", "minItems": 1, "items": {"type": "object", "additionalProperties": True}},
                ]
            },
            "user": _ID | {"description": "The person, if `X-User-Id` is not sent."},
            "conversation": {
                "description": "The conversation, if `X-Session-Id` is not sent.",
                "oneOf": [_ID, {"type": "object", "required": ["id"], "properties": {"id": _ID}}],
            },
            "stream": {"type": "boolean", "description": "Send the answer as server-sent events."},
        },
    },
}
_RETRY = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 0}}}
_SCHEME = {"WWW-Authenticate": {"schema": {"type": "string"}}}
# `ERRORS` has the errors that any call may return, with their headers. `ERRORS_ABOUT_PERSON` has those of calls about a
# person.
ERRORS: dict[str, tuple[str, Described]] = {
    "400": ("The host is not served (`unknown_host`), or the request is ambiguous (`ambiguous_header`).", {}),
    "401": ("`invalid_api_key`: the key is missing or not valid.", _SCHEME),
    "403": ("`insufficient_scope`, `other_site`, `https_required`: the call is not allowed.", {}),
    "405": ("`method_not_allowed`: the URL doesn't support this method.", {}),
    "408": ("`too_slow`: the body did not arrive in time.", {}),
    "411": ("`length_required`: the request has no Content-Length header.", {}),
    "413": ("`too_large`: the body is larger than `API_MAX_BODY_BYTES`.", {}),
    "429": ("`rate_limited`, `budget_used_up`, `daily_limit`: the call exceeds a limit.", _RETRY),
    "502": ("`upstream_unavailable`, `upstream_redirects`: the model endpoint can't be used.", {}),
    "503": ("`busy`, `unavailable`: retry the call. `no_upstream`: no model endpoint is configured.", _RETRY),
    "504": ("`upstream_timeout`: the model endpoint did not respond in time.", {}),
    "default": ("An error of the model endpoint, unchanged.", {}),
}
ERRORS_ABOUT_PERSON: dict[str, tuple[str, Described]] = {
    "400": (
        "The person or session is missing (`missing_user_id`, `missing_session_id`) or invalid, the body is not a "
        f"conversation, or the request can't be accepted. {ERRORS['400'][0]}",
        {},
    ),
    "404": ("`not_found`: the key may not act for this person.", {}),
}
_HEADERS = {
    "X-Memory": ("`applied`, or `unavailable` if the model was called without memory.", True),
    "X-Memory-Context": ("The id of the added context.", False),
    "X-Memory-Replaced": ("The number of messages that memory has replaced.", False),
    "X-Memory-Round": ("The id of the round: the new messages and the answer.", True),
    "X-Memory-Stored": ("`stored`, `spooled` or `unstored`.", True),
    "X-Upstream-Request-Id": ("The upstream's `X-Request-Id`.", False),
}
_PARAMETERS = {
    "X-User-Id": "The person. Optional with the key of a person.",
    "X-Session-Id": "The conversation.",
    "X-Agent-Id": "The assistant. Only read in the first call of a conversation.",
}


def describe(result: Described, generator: Any, request: Any, public: bool) -> Described:
    """Add the chat endpoint. A drf-spectacular hook."""
    result["components"]["schemas"] |= COMPONENTS
    result["paths"] |= {
        "/v1/chat/completions": {
            "post": _call(
                "chatcompletions_create", "Call the model with memory (Chat Completions).", "ChatCompletionInput"
            )
        },
        "/v1/responses": {
            "post": _call("responses_create", "Call the model with memory (Responses).", "ResponseInput")
        },
        "/v1/models": {"get": _models()},
    }
    return result


def _call(operation_id: str, text: str, body: str) -> Described:
    headers = {
        name: {"description": text, "required": required, "schema": {"type": "string"}}
        for name, (text, required) in _HEADERS.items()
    }
    content = _JSON | {"text/event-stream": {"schema": {"type": "string"}}}
    answer = {"description": "The model's answer, unchanged.", "headers": headers, "content": content}
    parameters = [
        {"in": "header", "name": name, "description": text, "schema": _ID} for name, text in _PARAMETERS.items()
    ]
    return _operation(operation_id, text, ERRORS | ERRORS_ABOUT_PERSON, answer) | {
        "parameters": parameters,
        "requestBody": {"required": True, "content": {"application/json": {"schema": _reference(body)}}},
    }


def _models() -> Described:
    answer = {"description": "The model endpoint's list, unchanged.", "content": _JSON}
    return _operation("models_list", "List the models of the model endpoint.", ERRORS, answer) | {WITHOUT_PERSON: True}


def _operation(operation_id: str, text: str, errors: dict[str, tuple[str, Described]], answer: Described) -> Described:
    refused = {
        status: {
            "description": text,
            "headers": headers,
            "content": {"application/json": {"schema": _reference(ERROR)}},
        }
        for status, (text, headers) in sorted(errors.items())
    }
    return {
        "operationId": operation_id,
        "description": text,
        "tags": ["chat"],
        "security": [{"ApiKey": []}],
        "parameters": [],
        "responses": {"200": answer} | refused,
    }


def _reference(name: str) -> Described:
    return {"$ref": f"#/components/schemas/{name}"}
