"""The consent page, where an operator grants an assistant access: to whose memory, with which scopes, for how long."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit

from django import forms
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect, QueryDict
from django.utils import timezone
from oauth2_provider.exceptions import FatalClientError, OAuthToolkitError
from oauth2_provider.oauth2_backends import get_oauthlib_core
from rest_framework.exceptions import ValidationError as RefusedByApi

from memory_extras.oauth.audiences import MCP, NAMES, SCOPES_OF, audience_named, resource_of
from memory_extras.oauth.conf import DAYS_MOST, MEANINGS, current
from memory_extras.oauth.models import Assistant, Consent
from memory_extras.oauth.views import is_on
from sessions_app.admin.applications import are_several
from sessions_app.admin.links import list_url
from sessions_app.admin.views import OperatorPage
from sessions_app.api.fields import PUBLIC_ID_MAX, PublicIdField
from sessions_app.models import ApiKey, Application, UserProfile
from sessions_app.models.application import DEFAULT

DAYS = 30
CHALLENGE_CHARS = 43  # of a SHA-256
PASSED_ON = ("client_id", "redirect_uri", "response_type", "state", "code_challenge", "code_challenge_method")


@dataclass(frozen=True)
class Asked:
    """The access that an assistant requests.

    Args:
        audience: The audience of the token.
        scopes: The scopes that the operator may grant.
        credentials: The validated parameters of the request.
    """

    assistant: Assistant
    audience: str
    scopes: Sequence[str]
    credentials: dict[str, Any]


class ToldAssistant(Exception):
    """A request that can't be granted. The operator is redirected to the assistant with the reason.

    Args:
        code: The OAuth error code.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class GrantForm(forms.Form):
    """The access that an operator grants.

    Args:
        scopes: The scopes that the assistant requested.
    """

    user_id = forms.CharField(label="User", max_length=PUBLIC_ID_MAX)
    application = forms.ModelChoiceField(Application.objects.all(), required=False)
    scope = forms.MultipleChoiceField(label="Permissions")
    days = forms.IntegerField(label="Days", min_value=1, max_value=DAYS_MOST, initial=DAYS)
    begins = forms.BooleanField(required=False)

    def __init__(self, *args: Any, scopes: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        may: Any = self.fields["scope"]
        may.choices = [(scope, MEANINGS[scope]) for scope in scopes]
        may.initial = scopes[:1]
        self.fields["application"].required = are_several()  # otherwise there is only one

    def clean_user_id(self) -> str:
        """Return the id, validated as in the API."""
        user_id: str = self.cleaned_data["user_id"]
        try:
            return str(PublicIdField().run_validation(user_id))
        except RefusedByApi:
            raise forms.ValidationError("An id can't contain a slash, and can't be '.' or '..'.") from None

    def clean(self) -> dict[str, Any]:
        """Find the person.

        Raises:
            ValidationError: The person doesn't exist, and may not be created.
        """
        given = super().clean() or {}
        if "user_id" in given:
            application = given.get("application")
            given["application_pk"] = application.pk if application else DEFAULT
            known = UserProfile.objects.filter(user_id=given["user_id"], application=given["application_pk"])
            if not (given["begins"] or known.exists()):
                self.add_error(
                    "user_id", "user_id: there is no user with this id. To create the user, select the checkbox below."
                )
        return given


class Authorize(OperatorPage):
    """The page. Its URL contains the whole request, so the request survives a login."""

    route, name, permission = "authorize/", "authorize", "add"
    title = "Authorize an assistant"
    template_name = "oauth/authorize.html"

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        if not (is_on() and request.GET):
            return HttpResponseRedirect(list_url(ApiKey))
        return self._answered(self._shown)

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        if not is_on():
            return HttpResponseRedirect(list_url(ApiKey))
        return self._answered(self._decided)

    def _answered(self, answer: Callable[[Asked], HttpResponse]) -> HttpResponse:
        """Respond to a request. Report errors to the assistant, or to the operator if the assistant isn't known."""
        try:
            return answer(self._asked())
        except FatalClientError:
            problem = (
                "The link is incomplete, the assistant isn't registered, or its redirect URI is not a registered one."
            )
            return self.page(status=400, problem=problem)
        except OAuthToolkitError as error:
            return self._refused(error.oauthlib_error.error, error.oauthlib_error.description or "")
        except ToldAssistant as refused:
            return self._refused(refused.code, str(refused))

    def _asked(self) -> Asked:
        """Return the access that the URL requests.

        Raises:
            FatalClientError: An error that only the operator may see.
            OAuthToolkitError, ToldAssistant: The request can't be granted.
        """
        given = {name: values for name, values in self.request.GET.lists() if values}
        if any(len(values) > 1 for values in given.values()) or not given.get("redirect_uri", [""])[0]:
            raise FatalClientError(error=ValueError("A parameter is missing or repeated."))
        _, credentials = get_oauthlib_core().validate_authorization_request(self._request_of_assistant())
        asked = {name: credentials.get(name) for name in PASSED_ON}
        if asked["code_challenge_method"] != "S256" or len(asked["code_challenge"]) != CHALLENGE_CHARS:
            raise ToldAssistant("invalid_request", "code_challenge is missing, or its method is not S256.")
        if self.request.GET.get("response_mode", "query") != "query":
            raise ToldAssistant("invalid_request", "response_mode must be query.")
        audience = audience_named(self.request.GET.get("resource", resource_of(MCP)))
        if not audience:
            raise ToldAssistant("invalid_target", f"resource must be one of {', '.join(map(resource_of, NAMES))}.")
        wanted = self.request.GET.get("scope", "").split() or SCOPES_OF[audience][:1]
        if not {*wanted} <= {*SCOPES_OF[audience]}:
            raise ToldAssistant("invalid_scope", f"scope must be one or more of {', '.join(SCOPES_OF[audience])}.")
        assistant = Assistant.objects.get(client_id=asked["client_id"])
        return Asked(assistant, audience, _complete(wanted, SCOPES_OF[audience]), asked)

    def _request_of_assistant(self) -> HttpRequest:
        """Return the request without the operator's form, because its fields are not the assistant's."""
        request = copy(self.request)
        request.method, request.POST = "GET", QueryDict()
        return request

    def _shown(self, asked: Asked, form: GrantForm | None = None) -> HttpResponse:
        form = form or GrantForm(scopes=asked.scopes)
        return self.page(
            status=400 if form.is_bound else 200,
            asked=asked,
            form=form,
            applications=Application.objects.all() if are_several() else [],
            audience=NAMES[asked.audience],
            resource=resource_of(asked.audience),
            goes_to=_place(asked.credentials["redirect_uri"]),
        )

    def _decided(self, asked: Asked) -> HttpResponse:
        if "allow" not in self.request.POST:
            raise ToldAssistant("access_denied", "The operator denied the request.")
        form = GrantForm(self.request.POST, scopes=asked.scopes)
        if not form.is_valid():
            return self._shown(asked, form)
        return self._granted(asked, form.cleaned_data)

    def _granted(self, asked: Asked, chosen: dict[str, Any]) -> HttpResponse:
        scopes = _complete(chosen["scope"], asked.scopes)
        with transaction.atomic():
            user = UserProfile.objects.ensure(chosen["user_id"], chosen["application_pk"])
            ends_at = timezone.now() + timedelta(days=chosen["days"])
            consent = Consent.objects.allow(asked.assistant, user=user, scopes=scopes, ends_at=ends_at, by=self.actor)
            more = {"consent": consent, "resource": [resource_of(asked.audience)]}
            address, *_ = get_oauthlib_core().create_authorization_response(
                self._request_of_assistant(), scopes, asked.credentials | more, allow=True
            )
            self.admin.log_addition(self.request, consent.key, f"Granted to {asked.assistant} by OAuth.")
        return self._back(address, asked.assistant.name, is_granted=True)

    def _refused(self, code: str, text: str) -> HttpResponse:
        """Redirect the operator to the assistant, whose redirect URI was validated before."""
        uri, state = self.request.GET["redirect_uri"], self.request.GET.get("state", "")
        told = {"error": code, "error_description": text} | ({"state": state} if state else {})
        mark = "&" if urlsplit(uri).query else "?"
        return self._back(f"{uri}{mark}{urlencode(told | {'iss': current().site})}", "")

    def _back(self, address: str, client: str, *, is_granted: bool = False) -> HttpResponse:
        """Show a page that redirects to the assistant. The form itself may only redirect within this site."""
        shown = self.page(back=address, client=client, is_granted=is_granted, goes_to=_place(address))
        shown["Cache-Control"], shown["Referrer-Policy"] = "no-store", "no-referrer"
        return shown


def _complete(chosen: Sequence[str], offered: Sequence[str]) -> list[str]:
    """Return the chosen scopes in order. `write` includes `read`."""
    return [scope for scope in offered if scope in chosen or (scope == "read" and "write" in chosen)]


def _place(uri: str) -> str:
    """Return a URL's scheme and host, without its path and query."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc}"
