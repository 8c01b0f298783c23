"""OAuth for assistants: where they ask, registering, and fetching, renewing and revoking a key that was granted.

What is here is asked by programs and answered as RFC 6749, 7009, 7591, 8414 and 9728 have it. The page on which an
operator grants it is `sessions_app.admin.views.authorize`.
"""

import json
from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.views.decorators.csrf import csrf_exempt
from django.views.generic import View
from rest_framework import serializers

from sessions_app.api.fields import TextField
from sessions_app.limited_operators import unlimited
from sessions_app.models import ApiKey, OAuthClient, OAuthGrant
from sessions_app.models.oauth import (
    UNUSED_MOST,
    URI_MAX_CHARS,
    OAuthRefused,
    Tokens,
    check_redirect_uri,
    digest,
)

RESOURCE = "/mcp"
METADATA = "/.well-known/oauth-protected-resource"
SCOPES = (ApiKey.Scope.READ.value, ApiKey.Scope.WRITE.value)
URIS_MOST = 10
GRANTS = ["authorization_code", "refresh_token"]


def is_on() -> bool:
    """Tell whether assistants may ask for keys."""
    return bool(settings.OAUTH.site)


def resource() -> str:
    """Return the address that a key is for, as assistants name it."""
    return f"{settings.OAUTH.site}{RESOURCE}"


def challenge() -> str:
    """Return what tells a client without a key where it may ask for one."""
    return f'Bearer resource_metadata="{settings.OAUTH.site}{METADATA}{RESOURCE}"' if is_on() else "Bearer"


class RegistrationInput(serializers.Serializer[Any]):
    """What a client says of itself; what else it says is not needed here."""

    client_name = TextField(max_length=255, allow_blank=True, default="")
    redirect_uris = serializers.ListField(child=TextField(max_length=URI_MAX_CHARS), min_length=1, max_length=URIS_MOST)


# No cookie counts here, so that a page of another site gains nothing by a form of its own.
@method_decorator(csrf_exempt, name="dispatch")
class OAuthView(View):
    """A call of a program, which has no key yet."""

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Answer, or say why not in OAuth's words.

        Raises:
            Http404: there is no OAuth here.
        """
        if not is_on():
            raise Http404
        try:
            with unlimited():
                answer = super().dispatch(request, *args, **kwargs)
        except OAuthRefused as refused:
            answer = JsonResponse({"error": refused.code, "error_description": str(refused)}, status=400)
        answer["Cache-Control"] = "no-store"
        return answer

    def given(self, name: str) -> str:
        """Return a field of the form.

        Raises:
            OAuthRefused: it isn't there, or there are several.
        """
        values = self.request.POST.getlist(name)
        if len(values) != 1 or not values[0]:
            raise OAuthRefused("invalid_request", f"{name} has to be there, once.")
        return str(values[0])


class ResourceMetadata(OAuthView):
    """What `/mcp` is, and who gives keys to it."""

    http_method_names = ["get", "head"]

    def get(self, request: HttpRequest) -> HttpResponse:
        site = settings.OAUTH.site
        return JsonResponse(
            {
                "resource": resource(),
                "resource_name": "Memory platform",
                "authorization_servers": [site],
                "scopes_supported": SCOPES,
                "bearer_methods_supported": ["header"],
            }
        )


class ServerMetadata(OAuthView):
    """Where assistants ask, and for what."""

    http_method_names = ["get", "head"]

    def get(self, request: HttpRequest) -> HttpResponse:
        site = settings.OAUTH.site
        registers = {"registration_endpoint": f"{site}{reverse('oauth_register')}"}
        return JsonResponse(
            {
                "issuer": site,
                "authorization_endpoint": f"{site}{reverse('admin:sessions_app_apikey_authorize')}",
                "token_endpoint": f"{site}{reverse('oauth_token')}",
                "revocation_endpoint": f"{site}{reverse('oauth_revoke')}",
                "scopes_supported": SCOPES,
                "response_types_supported": ["code"],
                "grant_types_supported": GRANTS,
                "token_endpoint_auth_methods_supported": ["none"],
                "revocation_endpoint_auth_methods_supported": ["none"],
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
            }
            | (registers if settings.OAUTH.open_registration else {})
        )


class Register(OAuthView):
    """A client that registers itself, where any may."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        if not settings.OAUTH.open_registration:
            raise Http404
        said = self._said()
        for uri in said["redirect_uris"]:
            check_redirect_uri(uri)
        if not OAuthClient.objects.has_room(UNUSED_MOST):
            raise OAuthRefused("temporarily_unavailable", "Too many clients registered just now that nobody uses.")
        name = said["client_name"].strip() or "An assistant"
        client = OAuthClient.objects.register(name, said["redirect_uris"], by=OAuthClient.ITSELF)
        return JsonResponse(_registered(client), status=201)

    def _said(self) -> dict[str, Any]:
        try:
            serializer = RegistrationInput(data=json.loads(self.request.body))
        except (ValueError, RecursionError):
            raise OAuthRefused("invalid_client_metadata", "It is no JSON.") from None
        if not serializer.is_valid():
            raise OAuthRefused("invalid_client_metadata", f"Not as it should be: {', '.join(serializer.errors)}.")
        return dict(serializer.validated_data)


def _registered(client: OAuthClient) -> dict[str, Any]:
    return {
        "client_id": client.client_id,
        "client_id_issued_at": int(client.created_at.timestamp()),
        "client_name": client.name,
        "redirect_uris": client.redirect_uris,
        "grant_types": GRANTS,
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "scope": " ".join(SCOPES),
    }


class Token(OAuthView):
    """A key for a code, or for what renews it."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        if request.POST.get("resource", resource()) != resource():
            raise OAuthRefused("invalid_target", f"Keys are for {resource()}.")
        if self.given("grant_type") == "authorization_code":
            return _answered(
                OAuthGrant.objects.exchange(
                    self.given("code"),
                    client_id=self.given("client_id"),
                    redirect_uri=self.given("redirect_uri"),
                    verifier=self.given("code_verifier"),
                )
            )
        if self.given("grant_type") == "refresh_token":
            token, client_id = self.given("refresh_token"), self.given("client_id")
            return _answered(OAuthGrant.objects.refresh(token, client_id=client_id))
        raise OAuthRefused("unsupported_grant_type", f"One of {', '.join(GRANTS)}.")


def _answered(tokens: Tokens) -> HttpResponse:
    return JsonResponse(
        {
            "access_token": tokens.key,
            "token_type": "Bearer",
            "expires_in": tokens.expires_in,
            "refresh_token": tokens.refresh,
            "scope": tokens.scope,
        }
    )


class Revoke(OAuthView):
    """A client that needs its key no more. What it shows that is not good is answered alike."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest) -> HttpResponse:
        token = self.given("token")
        key = ApiKey.objects.verify(token)
        shown = OAuthGrant.objects.filter(key=key) if key else OAuthGrant.objects.filter(refresh_hash=digest(token))
        grant = shown.select_related("key", "client").first()
        if grant and grant.is_of(self.given("client_id")):
            grant.key.revoke()
        return HttpResponse()
