"""The pages of end users, who log in at the OpenID provider and grant an assistant access to their own memory.

A login (`logins.py`) ends with a decision.
"""

from collections.abc import Callable, Sequence
from typing import Any

import structlog
from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.utils.crypto import constant_time_compare
from django.utils.decorators import method_decorator
from django.views.generic import View

from memory_extras.oauth import logins, openid
from memory_extras.oauth.audiences import MCP, audience_named, resource_of
from memory_extras.oauth.conf import current
from memory_extras.oauth.consent_page import Asked, ConsentPage, GrantForm
from memory_extras.oauth.models import Consent
from memory_extras.oauth.views import of_the_site
from sessions_app.models import Application, Event, UserProfile
from sessions_app.models.application import DEFAULT, UnknownApplication

logger = structlog.get_logger(__name__)

QUERY_MOST = 2_500  # characters of a request, which must fit into a cookie
GRANTED = "assistant_authorized"
PERSON = "person"  # actor of events and grants. Other columns identify the person, and an erasure clears them


def _to_request(query: str) -> HttpResponse:
    """Redirect to the page with the assistant's request."""
    return HttpResponseRedirect(f"{reverse('oauth2_provider:authorize')}?{query}")


def _application() -> Application:
    """Return the end users' application.

    Raises:
        UnknownApplication: The settings name an application that doesn't exist.
    """
    name = current().openid_application
    return Application.objects.named(name) if name else Application.objects.get(pk=DEFAULT)


class EndUserPage(ConsentPage):
    """The base class of the pages. Requests for other audiences than MCP are redirected to the operators' page."""

    granter = "The end user"
    is_new = False  # whether the end user has no memory yet

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        self.user_id = logins.user_id_in(request)
        resource = request.GET.get("resource") or resource_of(MCP)
        if not openid.is_on() or audience_named(resource) != MCP:
            return HttpResponseRedirect(f"{reverse('admin:sessions_app_apikey_authorize')}?{request.GET.urlencode()}")
        return super().dispatch(request, *args, **kwargs)

    @property
    def may_redirect(self) -> bool:
        return self.user_id is not None  # otherwise, this page would be an open redirect

    def answered(self, answer: Callable[[Asked], HttpResponse]) -> HttpResponse:
        """Respond to a request. If the settings name an unknown application, show an error."""
        try:
            return super().answered(answer)
        except UnknownApplication as error:
            return self.failed(str(error), status=503)

    def page(self, *, status: int = 200, **more: Any) -> HttpResponse:
        shown = admin.site.each_context(self.request) | {
            "title": "Authorize an assistant",
            "query": self.request.GET.urlencode(),
            "user_id": self.user_id,
            "is_new": self.is_new,
        }
        return render(self.request, "oauth/end_user.html", shown | more, status=status)

    def failed(self, text: str, *, query: str = "", status: int = 400) -> HttpResponse:
        """Show why a login failed, with a link to log in again.

        Args:
            query: The assistant's request. Blank if it isn't known.
        """
        return self.page(status=status, failure=text, query=query)


@method_decorator(of_the_site, name="dispatch")
class OwnConsent(EndUserPage):
    """The consent page for the end user's own memory. Its URL contains the whole request."""

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.answered(self.shown)

    def post(self, request: HttpRequest) -> HttpResponse:
        if self.user_id is None:  # the login has expired
            return self.answered(self.shown)
        answer = self.answered(self.decided)
        if answer.status_code == 200:
            logins.end(request, answer)
        return answer

    def shown(self, asked: Asked, form: GrantForm | None = None) -> HttpResponse:
        """Show the request: with the form if the end user is logged in, otherwise with a link to log in."""
        application = _application()
        known = UserProfile.objects.named(self.user_id, application.pk) if self.user_id else None
        self.is_new = known is None
        return super().shown(asked, form)

    def grant(self, asked: Asked, scopes: Sequence[str], form: GrantForm) -> Consent:
        assert self.user_id is not None
        user = UserProfile.objects.ensure(self.user_id, _application().pk)
        consent = Consent.objects.allow(asked.assistant, user=user, scopes=scopes, ends_at=form.ends_at(), by=PERSON)
        payload = {"client_id": asked.assistant.client_id, "scope": consent.scope}
        Event.objects.create(type=GRANTED, actor=PERSON, user_pk=user.pk, payload=payload)
        return consent


@method_decorator(of_the_site, name="dispatch")
class Login(EndUserPage):
    """Redirects to the provider, if the assistant's request is valid."""

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.answered(self._started)

    def _started(self, asked: Asked) -> HttpResponse:
        query = self.request.GET.urlencode()
        if len(query) > QUERY_MOST:
            return self.failed("The assistant's request is too long.")
        try:
            started = openid.start(prompt="login" if self.request.GET.get("prompt") == "login" else "")
        except openid.LoginFailed as error:
            return self.failed(str(error), query=query, status=error.status)
        answer = HttpResponseRedirect(started.url)
        logins.begin(answer, started.secrets | {"query": query})
        return answer


@method_decorator(of_the_site, name="dispatch")
class Callback(EndUserPage):
    """Ends a login that started in this browser."""

    def get(self, request: HttpRequest) -> HttpResponse:
        given, started = request.GET, logins.started_in(request)
        is_plain = all(len(values) == 1 for _, values in given.lists())
        if not (started and is_plain and constant_time_compare(given.get("state", ""), started["state"])):
            # The cookie stays, because another site may have made this request.
            return self.failed(
                "This login has expired, or it started in another browser. Start again in the assistant."
            )
        try:
            answer = self._ended(given, started)
        except openid.LoginFailed as error:
            answer = self.failed(str(error), query=started["query"], status=error.status)
        logins.abandon(answer)
        return answer

    def _ended(self, given: QueryDict, started: dict[str, str]) -> HttpResponse:
        code = given.get("code", "")
        if not code:
            logger.warning("an end user returned without a login", code=given.get("error", ""))
            raise openid.LoginCancelled("You did not log in.")
        if given.get("iss", current().openid_issuer) != current().openid_issuer:
            raise openid.LoginFailed("Your login could not be verified. Try again.")
        user_id = openid.user_id_of(code, started)
        answer = _to_request(started["query"])
        logins.finish(answer, user_id)
        return answer


@method_decorator(of_the_site, name="dispatch")
class Logout(View):
    """Ends the end user's login. At the next login, the provider asks for the password again."""

    def post(self, request: HttpRequest) -> HttpResponse:
        query = request.GET.copy()
        query["prompt"] = "login"
        answer = _to_request(query.urlencode())
        logins.end(request, answer)
        return answer
