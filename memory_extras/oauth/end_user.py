"""The pages of end users, who log in at the OpenID provider. They grant and revoke access to their own memory.

A login (`logins.py`) ends when an assistant's request is granted or denied.
"""

from collections.abc import Sequence
from typing import Any

import structlog
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.utils.crypto import constant_time_compare
from django.utils.decorators import method_decorator
from django.views.generic import View

from memory_extras.oauth import logins, openid
from memory_extras.oauth.conf import MCP, audience_named, current, resource_of
from memory_extras.oauth.consent_page import AccessRequest, ConsentPage, GrantForm
from memory_extras.oauth.models import PERSON, Consent
from memory_extras.oauth.views import public_endpoint
from sessions_app.models import Application, Event, UserProfile
from sessions_app.models.application import DEFAULT, UnknownApplication

logger = structlog.get_logger(__name__)

MAX_QUERY_CHARS = 2_500  # maximum length of a request, which must fit into a cookie
GRANTED, REVOKED = "assistant_authorized", "assistant_grant_revoked"


def _to_page(query: str) -> HttpResponse:
    """Redirect to the page with the assistant's request. Without a request, redirect to the end user's grants."""
    return HttpResponseRedirect(
        f"{reverse('oauth2_provider:authorize')}?{query}" if query else reverse("oauth2_provider:grants")
    )


def _application() -> Application:
    """Return the end users' application, or raise `UnknownApplication` if it doesn't exist."""
    name = current().openid_application
    return Application.objects.named(name) if name else Application.objects.get(pk=DEFAULT)


class EndUserPage(ConsentPage):
    """The base class of the pages. Requests for other audiences than MCP are redirected to the operators' page."""

    template_name = "oauth/end_user.html"
    title = "Authorize an assistant"
    granter = "The end user"
    is_new = False  # True if the end user has no memory yet

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        self.user_id = logins.user_id_in(request)
        resource = request.GET.get("resource") or resource_of(MCP)
        if not current().has_login or audience_named(resource) != MCP:
            return HttpResponseRedirect(f"{reverse('admin:sessions_app_apikey_authorize')}?{request.GET.urlencode()}")
        try:
            return super().dispatch(request, *args, **kwargs)
        except UnknownApplication:  # deleted since the site started
            logger.error("OAUTH__OPENID_APPLICATION names no application", name=current().openid_application)
            return self.failed("This page is not available at the moment. Ask your administrator for help.", status=503)

    @property
    def may_redirect(self) -> bool:
        return self.user_id is not None  # otherwise, this page would be an open redirect

    def page(self, *, status: int = 200, **more: Any) -> HttpResponse:
        shown = admin.site.each_context(self.request) | {
            "title": self.title,
            "query": self.request.GET.urlencode(),
            "user_id": self.user_id,
            "is_new": self.is_new,
        }
        return render(self.request, self.template_name, shown | more, status=status)

    def failed(self, text: str, *, login_url: str = "", status: int = 400) -> HttpResponse:
        """Show why a request failed, with a link to log in again if there is a URL."""
        return self.page(status=status, failure=text, login_url=login_url)

    def start_login(self, query: str) -> HttpResponse:
        """Redirect to the provider.

        Args:
            query: The assistant's request, or blank if the end user wants to see their grants.
        """
        try:
            started = openid.start(prompt="login" if self.request.GET.get("prompt") == "login" else "")
        except openid.LoginFailed as error:
            return self.login_failed(error, query)
        answer = HttpResponseRedirect(started.url)
        logins.begin(answer, started.secrets | {"query": query})
        return answer

    def login_failed(self, error: openid.LoginFailed, query: str) -> HttpResponse:
        again = f"{reverse('oauth2_provider:login')}?{query}" if query else reverse("oauth2_provider:grants-login")
        return self.failed(str(error), login_url=again, status=error.status)


@method_decorator(public_endpoint, name="dispatch")
class OwnConsent(EndUserPage):
    """The consent page for the end user's own memory. Its URL contains the whole request."""

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.respond(self.show)

    def post(self, request: HttpRequest) -> HttpResponse:
        if self.user_id is None:  # the login has expired
            return self.respond(self.show)
        answer = self.respond(self.decide)
        if answer.status_code == 200:
            logins.end(request, answer)
        return answer

    def show(self, asked: AccessRequest, form: GrantForm | None = None) -> HttpResponse:
        """Show the request: with the form if the end user is logged in, otherwise with a link to log in."""
        application = _application()
        known = UserProfile.objects.named(self.user_id, application.pk) if self.user_id else None
        self.is_new = known is None
        return super().show(asked, form)

    def grant(self, asked: AccessRequest, scopes: Sequence[str], form: GrantForm) -> Consent:
        assert self.user_id is not None
        user = UserProfile.objects.ensure(self.user_id, _application().pk)
        consent = Consent.objects.allow(asked.assistant, user=user, scopes=scopes, ends_at=form.ends_at(), by=PERSON)
        payload = {"client_id": asked.assistant.client_id, "scope": consent.scope}
        Event.objects.create(type=GRANTED, actor=PERSON, user_pk=user.pk, payload=payload)
        return consent


@method_decorator(public_endpoint, name="dispatch")
class Login(EndUserPage):
    """Redirects to the provider, if the assistant's request is valid."""

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.respond(self._start)

    def _start(self, asked: AccessRequest) -> HttpResponse:
        query = self.request.GET.urlencode()
        if len(query) > MAX_QUERY_CHARS:
            return self.failed("The assistant's request is too long.")
        return self.start_login(query)


@method_decorator(public_endpoint, name="dispatch")
class Callback(EndUserPage):
    """Ends a login that started in this browser."""

    title = "Log in"

    def get(self, request: HttpRequest) -> HttpResponse:
        given, started = request.GET, logins.started_in(request)
        is_plain = all(len(values) == 1 for _, values in given.lists())
        if not (started and is_plain and constant_time_compare(given.get("state", ""), started["state"])):
            # The cookie stays, because another site may have made this request.
            return self.failed("This login has expired, or it started in another browser. Start again.")
        try:
            answer = self._finish(given, started)
        except openid.LoginFailed as error:
            answer = self.login_failed(error, started["query"])
        logins.abandon(answer)
        return answer

    def _finish(self, given: QueryDict, started: dict[str, str]) -> HttpResponse:
        code = given.get("code", "")
        if not code:
            logger.warning("an end user returned without a login", code=given.get("error", ""))
            raise openid.LoginCancelled("You did not log in.")
        if given.get("iss", current().openid_issuer) != current().openid_issuer:
            raise openid.LoginFailed("Your login could not be verified. Try again.")
        user_id = openid.user_id_of(code, started)
        answer = _to_page(started["query"])
        logins.end(self.request, answer)  # end the earlier login in this browser, if there is one
        logins.finish(answer, user_id)
        return answer


@method_decorator(public_endpoint, name="dispatch")
class Logout(View):
    """Ends the end user's login. For a login from the next page, the provider asks for the password again."""

    def post(self, request: HttpRequest) -> HttpResponse:
        query = request.GET.copy()
        page = "authorize" if query else "grants"
        query["prompt"] = "login"
        answer = HttpResponseRedirect(f"{reverse(f'oauth2_provider:{page}')}?{query.urlencode()}")
        logins.end(request, answer)
        return answer


@method_decorator(public_endpoint, name="dispatch")
class OwnGrants(EndUserPage):
    """The list of the end user's active grants."""

    template_name = "oauth/own_grants.html"
    title = "Your assistants"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.page(grants=self.grants())

    def grants(self) -> QuerySet[Consent]:
        if self.user_id is None:
            return Consent.objects.none()
        own = Consent.objects.by_person(self.user_id, _application())
        return own.active().select_related("assistant", "key").order_by("-pk")


@method_decorator(public_endpoint, name="dispatch")
class OwnGrantsLogin(EndUserPage):
    """Redirects to the provider. After the login, the end user sees their grants."""

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.start_login("")


@method_decorator(public_endpoint, name="dispatch")
class RevokeOwnGrant(OwnGrants):
    """Revokes one of the end user's grants, with its tokens. Grants of other people are ignored."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        consent = self.grants().filter(pk=pk).first()
        if consent and consent.key.revoke():
            payload = {"client_id": consent.assistant.client_id}
            Event.objects.create(type=REVOKED, actor=PERSON, user_pk=consent.key.user_id, payload=payload)
        return _to_page("")
