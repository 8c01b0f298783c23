"""The base of the consent pages for operators and end users: validate an assistant's request, and grant or deny it."""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar
from urllib.parse import urlencode, urlsplit

from django import forms
from django.db import transaction
from django.http import HttpRequest, HttpResponse, QueryDict
from django.utils import timezone
from django.views.generic import View
from oauth2_provider.exceptions import FatalClientError, OAuthToolkitError
from oauth2_provider.oauth2_backends import get_oauthlib_core

from memory_extras.oauth.conf import (
    AUDIENCES,
    MAX_DAYS,
    MCP,
    SCOPE_TEXTS,
    SCOPES_OF,
    audience_named,
    current,
    resource_of,
)
from memory_extras.oauth.models import Assistant, Consent

DAYS = 30
CHALLENGE_CHARS = 43  # length of a SHA-256 hash in base64
REQUEST_PARAMETERS = ("client_id", "redirect_uri", "response_type", "state", "code_challenge", "code_challenge_method")


@dataclass(frozen=True)
class AccessRequest:
    """The access that an assistant requests: the scopes that it may get, and the request's validated parameters."""

    assistant: Assistant
    audience: str
    scopes: Sequence[str]
    credentials: dict[str, Any]


class Rejection(Exception):
    """A request that can't be granted. The browser is redirected to the assistant with the reason.

    Args:
        code: The OAuth error code.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class GrantForm(forms.Form):
    """The granted scopes, and the duration of the grant. The choices are the scopes that the assistant requested."""

    scope = forms.MultipleChoiceField(label="Permissions")
    days = forms.IntegerField(label="Days", min_value=1, max_value=MAX_DAYS, initial=DAYS)

    def __init__(self, *args: Any, scopes: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        may: Any = self.fields["scope"]
        may.choices = [(scope, SCOPE_TEXTS[scope]) for scope in scopes]
        may.initial = scopes[:1]

    def ends_at(self) -> datetime:
        return timezone.now() + timedelta(days=self.cleaned_data["days"])


class ConsentPage(View):
    """A page on which an operator or an end user grants the access that its URL requests.

    Attributes:
        granter: The subject of the error message that reports a denial.
    """

    form_class: ClassVar[type[GrantForm]] = GrantForm
    granter: ClassVar[str]

    def page(self, *, status: int = 200, **more: Any) -> HttpResponse:
        raise NotImplementedError

    def grant(self, asked: AccessRequest, scopes: Sequence[str], form: GrantForm) -> Consent:
        """Store and log the grant of these scopes, with the valid form."""
        raise NotImplementedError

    @property
    def may_redirect(self) -> bool:
        """Return whether the page may redirect to the assistant automatically. Otherwise, it has only a link."""
        return True

    def respond(self, answer: Callable[[AccessRequest], HttpResponse]) -> HttpResponse:
        """Respond to a request. Report errors to the assistant, or on the page if the assistant isn't known."""
        try:
            return answer(self._parse_request())
        except FatalClientError:
            problem = (
                "The link is incomplete, the assistant isn't registered, or its redirect URI is not a registered one."
            )
            return self.page(status=400, problem=problem)
        except OAuthToolkitError as error:
            return self._reject(error.oauthlib_error.error, error.oauthlib_error.description or "")
        except Rejection as refused:
            return self._reject(refused.code, str(refused))

    def _parse_request(self) -> AccessRequest:
        """Return the access that the URL requests.

        Raises:
            FatalClientError: An error that must not be sent to the assistant.
            OAuthToolkitError, Rejection: The request can't be granted.
        """
        given = {name: values for name, values in self.request.GET.lists() if values}
        if any(len(values) > 1 for values in given.values()) or not given.get("redirect_uri", [""])[0]:
            raise FatalClientError(error=ValueError("A parameter is missing or repeated."))
        _, credentials = get_oauthlib_core().validate_authorization_request(self._request_of_assistant())
        parameters = {name: credentials.get(name) for name in REQUEST_PARAMETERS}
        if parameters["code_challenge_method"] != "S256" or len(parameters["code_challenge"]) != CHALLENGE_CHARS:
            raise Rejection("invalid_request", "code_challenge is missing, or its method is not S256.")
        if self.request.GET.get("response_mode", "query") != "query":
            raise Rejection("invalid_request", "response_mode must be query.")
        audience = audience_named(self.request.GET.get("resource", resource_of(MCP)))
        if not audience:
            raise Rejection("invalid_target", f"resource must be one of {', '.join(map(resource_of, AUDIENCES))}.")
        wanted = self.request.GET.get("scope", "").split() or SCOPES_OF[audience][:1]
        if not {*wanted} <= {*SCOPES_OF[audience]}:
            raise Rejection("invalid_scope", f"scope must be one or more of {', '.join(SCOPES_OF[audience])}.")
        assistant = Assistant.objects.get(client_id=parameters["client_id"])
        return AccessRequest(assistant, audience, _with_implied(wanted, SCOPES_OF[audience]), parameters)

    def _request_of_assistant(self) -> HttpRequest:
        """Return the request without the form of this page, because its fields don't come from the assistant."""
        request = copy(self.request)
        request.method, request.POST = "GET", QueryDict()
        return request

    def show(self, asked: AccessRequest, form: GrantForm | None = None) -> HttpResponse:
        form = form or self.form_class(scopes=asked.scopes)
        return self.page(
            status=400 if form.is_bound else 200,
            asked=asked,
            form=form,
            audience=AUDIENCES[asked.audience],
            resource=resource_of(asked.audience),
            goes_to=_site_of(asked.credentials["redirect_uri"]),
        )

    def decide(self, asked: AccessRequest) -> HttpResponse:
        if "allow" not in self.request.POST:
            raise Rejection("access_denied", f"{self.granter} denied the request.")
        form = self.form_class(self.request.POST, scopes=asked.scopes)
        if not form.is_valid():
            return self.show(asked, form)
        return self._grant(asked, form)

    def _grant(self, asked: AccessRequest, form: GrantForm) -> HttpResponse:
        scopes = _with_implied(form.cleaned_data["scope"], asked.scopes)
        with transaction.atomic():
            more = {"consent": self.grant(asked, scopes, form), "resource": [resource_of(asked.audience)]}
            address, *_ = get_oauthlib_core().create_authorization_response(
                self._request_of_assistant(), scopes, asked.credentials | more, allow=True
            )
        return self._redirect_to_assistant(address, asked.assistant.name, is_granted=True)

    def _reject(self, code: str, text: str) -> HttpResponse:
        """Redirect to the assistant, whose redirect URI was validated before."""
        uri, state = self.request.GET["redirect_uri"], self.request.GET.get("state", "")
        parameters = {"error": code, "error_description": text} | ({"state": state} if state else {})
        mark = "&" if urlsplit(uri).query else "?"
        return self._redirect_to_assistant(f"{uri}{mark}{urlencode(parameters | {'iss': current().site})}", "")

    def _redirect_to_assistant(self, address: str, client: str, *, is_granted: bool = False) -> HttpResponse:
        """Show a page that redirects to the assistant. The form itself may only redirect within this site."""
        shown = self.page(
            back=address,
            may_redirect=self.may_redirect,
            client=client,
            is_granted=is_granted,
            goes_to=_site_of(address),
        )
        shown["Cache-Control"], shown["Referrer-Policy"] = "no-store", "no-referrer"
        return shown


def _with_implied(chosen: Sequence[str], offered: Sequence[str]) -> list[str]:
    """Return the chosen scopes in order. `write` includes `read`."""
    return [scope for scope in offered if scope in chosen or (scope == "read" and "write" in chosen)]


def _site_of(uri: str) -> str:
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc}"
