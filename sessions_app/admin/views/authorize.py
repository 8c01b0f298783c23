"""The page on which an operator grants an assistant a key: whose memory, how much of it, and for how long."""

from datetime import timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit

from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.utils import timezone
from rest_framework.exceptions import ValidationError as RefusedByApi

from sessions_app.admin.applications import are_several
from sessions_app.admin.links import list_url
from sessions_app.admin.views.base import OperatorPage
from sessions_app.api.fields import PUBLIC_ID_MAX, PublicIdField
from sessions_app.api.oauth import SCOPES, is_on, resource
from sessions_app.models import ApiKey, Application, OAuthClient, OAuthGrant, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.models.oauth import Asked, OAuthRefused

READ, WRITE = ApiKey.Scope.READ, ApiKey.Scope.WRITE
MAY = {READ.value: "Read: search, contexts, facts", WRITE.value: "Read and write: also add, correct and end facts"}
DAYS, DAYS_MOST = 30, 365
CHALLENGE_CHARS = 43  # of a SHA-256


class GrantForm(forms.Form):
    """What an operator grants.

    Args:
        asked: scopes that the assistant asked for.
    """

    user_id = forms.CharField(label="Whose memory", max_length=PUBLIC_ID_MAX)
    application = forms.ModelChoiceField(Application.objects.all(), required=False)
    scope = forms.ChoiceField(label="What it may do", choices=list(MAY.items()))
    days = forms.IntegerField(label="Days", min_value=1, max_value=DAYS_MOST, initial=DAYS)
    begins = forms.BooleanField(required=False)

    def __init__(self, *args: Any, scopes: Any = SCOPES, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        may: Any = self.fields["scope"]
        may.choices = [(scope, MAY[scope]) for scope in scopes]
        may.initial = scopes[0]
        self.fields["application"].required = are_several()  # else there is one

    def clean_user_id(self) -> str:
        """Return the name, which is one as the API takes it."""
        user_id: str = self.cleaned_data["user_id"]
        try:
            return str(PublicIdField().run_validation(user_id))
        except RefusedByApi:
            raise forms.ValidationError("An id has no slash and is not '.' or '..'.") from None

    def clean(self) -> dict[str, Any]:
        """Find the person.

        Raises:
            ValidationError: nobody has that name, and no memory is to be begun.
        """
        given = super().clean() or {}
        if "user_id" in given:
            application = given.get("application")
            given["application_pk"] = application.pk if application else DEFAULT
            known = UserProfile.objects.filter(user_id=given["user_id"], application=given["application_pk"])
            if not (given["begins"] or known.exists()):
                self.add_error("user_id", "Nobody has this name yet. Tick the box to begin a memory for it.")
        return given


class ToldClient(OAuthRefused):
    """What can't be granted, and is told to the client, where the operator is taken back to.

    Args:
        redirect_uri: of the client.
        state: that it sent.
        code, text: as OAuth has them.
    """

    def __init__(self, redirect_uri: str, state: str, code: str, text: str) -> None:
        super().__init__(code, text)
        self.redirect_uri, self.state = redirect_uri, state


class Authorize(OperatorPage):
    """The page itself; the address carries what is asked, so that a login on the way loses nothing."""

    route, name, permission = "authorize/", "authorize", "add"
    title = "Let an assistant in"
    template_name = "operator/keys/authorize.html"

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        if not (is_on() and request.GET):
            return HttpResponseRedirect(list_url(ApiKey))
        return self._answered(self._shown)

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        if not is_on():
            return HttpResponseRedirect(list_url(ApiKey))
        return self._answered(self._decided)

    def _answered(self, answer: Any) -> HttpResponseBase:
        """Answer what is asked for; tell the client where that can't be, or the operator where no client is known."""
        try:
            return answer(asked_in(self.request))  # type: ignore[no-any-return]
        except ToldClient as refused:
            told = {"error": refused.code, "error_description": str(refused)}
            return self._back(refused.redirect_uri, refused.state, told, "")
        except OAuthRefused as refused:
            return self.page(status=400, problem=str(refused))

    def _shown(self, asked: Asked, form: GrantForm | None = None) -> HttpResponse:
        form = form or GrantForm(scopes=asked.scopes)
        applications = Application.objects.all() if are_several() else []
        status = 400 if form.is_bound else 200
        return self.page(
            status=status, asked=asked, form=form, applications=applications, goes_to=_place(asked.redirect_uri)
        )

    def _decided(self, asked: Asked) -> HttpResponse:
        if "allow" not in self.request.POST:
            told = {"error": "access_denied", "error_description": "The operator said no."}
            return self._back(asked.redirect_uri, asked.state, told, asked.client.name)
        form = GrantForm(self.request.POST, scopes=asked.scopes)
        if not form.is_valid():
            return self._shown(asked, form)
        return self._granted(asked, form.cleaned_data)

    def _granted(self, asked: Asked, chosen: dict[str, Any]) -> HttpResponse:
        user = UserProfile.objects.ensure(chosen["user_id"], chosen["application_pk"])
        ends_at = timezone.now() + timedelta(days=chosen["days"])
        grant, code = OAuthGrant.objects.allow(asked, user=user, scope=chosen["scope"], ends_at=ends_at, by=self.actor)
        self.admin.log_addition(self.request, grant.key, f"Granted to {asked.client.name} by OAuth.")
        return self._back(asked.redirect_uri, asked.state, {"code": code}, asked.client.name, is_granted=True)

    def _back(
        self, redirect_uri: str, state: str, told: dict[str, str], client: str, *, is_granted: bool = False
    ) -> HttpResponse:
        """Show the page that goes on to the client: a form's own answer may lead to this site alone."""
        answer = told | ({"state": state} if state else {}) | {"iss": settings.OAUTH.site}
        mark = "&" if urlsplit(redirect_uri).query else "?"
        address = f"{redirect_uri}{mark}{urlencode(answer)}"
        shown = self.page(back=address, client=client, is_granted=is_granted, goes_to=_place(redirect_uri))
        shown["Cache-Control"], shown["Referrer-Policy"] = "no-store", "no-referrer"
        return shown


def asked_in(request: HttpRequest) -> Asked:
    """Return what the address asks for.

    Raises:
        ToldClient: it can't be granted, and the client is to be told.
        OAuthRefused: it can't be said who asks, so nobody else is told.
    """
    given = {name: values for name, values in request.GET.lists() if values}
    if any(len(values) > 1 for values in given.values()):
        raise OAuthRefused("invalid_request", "The link is not whole: it says something twice.")
    said = {name: values[0] for name, values in given.items()}
    client = OAuthClient.objects.known(said.get("client_id", "")).first()
    uri, state = said.get("redirect_uri", ""), said.get("state", "")
    if client is None or uri not in client.redirect_uris:
        raise OAuthRefused("invalid_request", "The assistant that asks is not known here, or not at this address.")
    if said.get("response_type") != "code":
        raise ToldClient(uri, state, "unsupported_response_type", "Only codes are given out.")
    challenge = said.get("code_challenge", "")
    if said.get("code_challenge_method") != "S256" or len(challenge) != CHALLENGE_CHARS or not challenge.isascii():
        raise ToldClient(uri, state, "invalid_request", "It takes a code_challenge of S256.")
    if said.get("resource", resource()) != resource():
        raise ToldClient(uri, state, "invalid_target", f"Keys are for {resource()}.")
    wanted = said.get("scope", READ.value).split()
    if not {*wanted} <= {*SCOPES}:
        raise ToldClient(uri, state, "invalid_scope", f"The scopes are {', '.join(SCOPES)}.")
    return Asked(client, uri, challenge, state, SCOPES if WRITE.value in wanted else (READ.value,))


def _place(uri: str) -> str:
    """Return where an address leads, without what stands behind that."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc}"
