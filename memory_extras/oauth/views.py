"""Endpoints for assistants without a login: metadata, registration, and tokens.

The responses follow RFC 6749, 7009, 7591, 8414 and 9728. The consent pages are in `admin` and `end_user`.
"""

import json
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, QueryDict
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.generic import View
from drf_standardized_errors.formatter import flatten_errors
from oauth2_provider.views import (
    OAuthProtectedResourceMetadataView,
    OAuthServerMetadataView,
    RevokeTokenView,
    TokenView,
)
from rest_framework import serializers

from memory_extras.oauth.access_tokens import digest
from memory_extras.oauth.conf import GRANT_TYPES, MCP, SCOPES_OF, current, resource_of
from memory_extras.oauth.models import MAX_UNUSED, URI_MAX_CHARS, Assistant, BadRedirect, Code
from sessions_app.api.fields import TextField
from sessions_app.limited_operators import unlimited

MAX_URIS = 10
ViewFunction = Callable[..., HttpResponseBase]


def public_endpoint(view: ViewFunction) -> ViewFunction:
    """Return a view for clients without credentials. It returns 404 if OAuth is off, and is never cached."""

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not current().is_on:
            raise Http404
        with unlimited():
            return view(request, *args, **kwargs)

    return never_cache(answer)


@method_decorator(public_endpoint, name="dispatch")
class ServerMetadata(OAuthServerMetadataView):  # type: ignore[misc]
    """The authorization server's metadata: its endpoints and options."""


@method_decorator(public_endpoint, name="dispatch")
class ResourceMetadata(OAuthProtectedResourceMetadataView):  # type: ignore[misc]
    """The metadata of an audience, and its token issuer."""

    audience = MCP

    def get_resource(self, request: HttpRequest) -> str:
        return resource_of(self.audience)

    def get_scopes_supported(self) -> list[str]:
        return list(SCOPES_OF[self.audience])


def _refusal_of(sent: QueryDict) -> HttpResponse | None:
    """Return an error for repeated parameters or unsupported grant types, which the library would accept."""
    if any(len(values) > 1 for _, values in sent.lists()):
        return _refused("invalid_request", "A parameter was sent more than once. Send each parameter once.")
    if sent.get("grant_type") not in GRANT_TYPES:
        return _refused("unsupported_grant_type", f"grant_type must be one of {', '.join(GRANT_TYPES)}.")
    return None


@method_decorator(public_endpoint, name="dispatch")
class Token(TokenView):  # type: ignore[misc]
    """Issues tokens for a code or a refresh token. A rejected or reused code ends its grant."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        with transaction.atomic():
            Assistant.objects.lock(request.POST.get("client_id", ""))
            answer: HttpResponse = _refusal_of(request.POST) or super().post(request, *args, **kwargs)
            if answer.status_code != 200:
                shown = Code.objects.filter(code=digest(request.POST.get("code", "")))
                for code in shown.select_related("consent__key"):
                    code.consent.key.revoke()
        answer["Content-Type"] = "application/json"  # the library's error responses may have another content type
        return answer


@method_decorator(public_endpoint, name="dispatch")
class Revoke(RevokeTokenView):  # type: ignore[misc]
    """Revokes the token of a client that no longer needs it."""


class RegistrationInput(serializers.Serializer[Any]):
    """Metadata that a client sends when it registers. Other fields are ignored."""

    client_name = TextField(max_length=255, allow_blank=True, default="")
    redirect_uris = serializers.ListField(child=TextField(max_length=URI_MAX_CHARS), min_length=1, max_length=MAX_URIS)


# The library's own view issues secrets and management tokens that never expire, and has no limits.
@method_decorator(csrf_exempt, name="dispatch")
@method_decorator(public_endpoint, name="dispatch")
class Register(View):
    """Registers a client, if clients may register themselves."""

    def post(self, request: HttpRequest) -> HttpResponse:
        """Register a public client. Raise `Http404` if only operators register clients."""
        if not current().open_registration:
            raise Http404
        try:
            serializer = RegistrationInput(data=json.loads(request.body))
        except (ValueError, RecursionError):
            return _refused("invalid_client_metadata", "The request body is not valid JSON.")
        if not serializer.is_valid():
            reasons = [f"{error.attr}: {error.detail}" for error in flatten_errors(serializer.errors)]
            return _refused("invalid_client_metadata", " ".join(reasons))
        if not Assistant.objects.has_room(MAX_UNUSED):
            return _refused(
                "temporarily_unavailable", "Too many unused clients were registered recently. Try again later."
            )
        said = serializer.validated_data
        name = said["client_name"].strip() or "Unnamed assistant"
        try:
            assistant = Assistant.objects.register(name, said["redirect_uris"], registered_itself=True)
        except BadRedirect as refused:
            return _refused(refused.code, str(refused))
        return JsonResponse(_registered(assistant), status=201)


def _refused(code: str, text: str) -> HttpResponse:
    return JsonResponse({"error": code, "error_description": text}, status=400)


def _registered(assistant: Assistant) -> dict[str, Any]:
    return {
        "client_id": assistant.client_id,
        "client_id_issued_at": int(assistant.created.timestamp()),
        "client_name": assistant.name,
        "redirect_uris": assistant.redirect_uris.split(),
        "grant_types": GRANT_TYPES,
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "scope": " ".join(SCOPES_OF[MCP]),
    }
