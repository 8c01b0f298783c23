"""End users who log in at a real OpenID provider, and grant access to their own memory only."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import flask
import httpx2
import pytest
from django.contrib.sessions.models import Session
from django.core import signing
from django.core.checks import Tags, run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import CommandError, SystemCheckError
from django.test import Client as Browser
from django.utils import timezone
from pytest_django.fixtures import Settings

from memory_extras.oauth import end_user, logins, openid
from memory_extras.oauth.access_tokens import TokenIssuer
from memory_extras.oauth.conf import OAuthSettings
from memory_extras.oauth.models import Assistant, Consent
from memoryproject import conf
from memoryproject.conf import BASE_DIR
from sessions_app.models import ApiKey, Application, Event, UserProfile
from tests.support.live import live_site
from tests.support.oauth import BACK, VERIFIER, asked, back_from, let_ask, let_log_in
from tests.support.openid_provider import CLIENT_ID, CLIENT_SECRET, OpenIDProvider, signing_key
from tests.support.operator import operator
from tests.support.other_database import empty_database
from tests.support.processes import environment, free_port, web_at
from tests.support.waiting import TIMEOUT

pytestmark = pytest.mark.django_db(transaction=True)

SITE = "https://memory.example.com"
PAGE, LOGIN, CALLBACK, LOGOUT = "/authorize", "/authorize/login", "/authorize/callback", "/authorize/logout"
OPERATORS = "/admin/sessions_app/apikey/authorize/"
GRANTS = "/authorize/grants"
LOGGED_IN = "Logged in as"
NOT_VERIFIED = "Your login could not be verified."


@pytest.fixture
def provider(settings: Settings) -> Iterator[OpenIDProvider]:
    """A provider that the platform uses."""
    with OpenIDProvider() as made:
        let_log_in(settings, SITE, made)
        yield made


@pytest.fixture
def assistant(transactional_db: None) -> Assistant:
    return Assistant.objects.register("Claude", [BACK], registered_itself=True)


def at_provider(started: Any, user: str = "ada") -> dict[str, str]:
    """Log in on the provider's page. Return the parameters that it sends back to the platform."""
    there = httpx2.post(started["Location"], data={"user": user})
    assert there.headers["Location"].startswith(f"{SITE}{CALLBACK}?"), there.text
    return dict(parse_qsl(urlsplit(there.headers["Location"]).query))


def start(browser: Browser, client: Assistant, **more: str) -> Any:
    return browser.get(LOGIN, query_params=asked(client, **more))


def log_in(browser: Browser, client: Assistant, user: str = "ada") -> Any:
    """Log in. Return the response to the provider's redirect."""
    return browser.get(CALLBACK, query_params=at_provider(start(browser, client), user))


def page(browser: Browser, client: Assistant) -> str:
    return str(browser.get(PAGE, query_params=asked(client)).content.decode())


def allow(browser: Browser, client: Assistant, query: dict[str, str] | None = None, **form: Any) -> Any:
    given = {"scope": ["read", "write"], "days": 30, "allow": ""} | form
    return browser.post(PAGE, given, query_params=query or asked(client))


def is_logged_in(browser: Browser, client: Assistant) -> bool:
    return LOGGED_IN in page(browser, client)


def see_grants(browser: Browser, user: str = "ada") -> str:
    """Log in to see the own grants. Return the page."""
    back = at_provider(browser.get(f"{GRANTS}/login"), user)
    return str(browser.get(CALLBACK, query_params=back, follow=True).content.decode())


def revoke(browser: Browser, consent: Consent) -> Any:
    return browser.post(f"{GRANTS}/{consent.pk}/revoke")


def token_of(client: Assistant, code: str) -> dict[str, Any]:
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": BACK, "code_verifier": VERIFIER}
    return dict(Browser().post("/token", form | {"client_id": client.client_id}).json())


# --- the journey ---


@pytest.mark.slow
def test_an_end_user_logs_in_and_grants_access_to_their_own_memory(
    provider: OpenIDProvider, assistant: Assistant, ada: UserProfile
) -> None:
    browser = Browser()
    first = page(browser, assistant)
    assert "“Claude” asks for access to your memory" in first and f"{LOGIN}?" in first and f"{OPERATORS}?" in first
    assert "name is not verified" in first and "http://localhost:3333" in first and "<form" not in first
    back = log_in(browser, assistant)
    assert dict(parse_qsl(urlsplit(back["Location"]).query)) == asked(assistant)
    assert back["Location"].startswith(f"{PAGE}?") and "<strong>ada</strong>" in page(browser, assistant)
    token = token_of(assistant, back_from(allow(browser, assistant, days=2))["code"])
    key, consent = ApiKey.objects.get(), Consent.objects.get()
    assert (key.user, token["scope"], consent.granted_by) == (ada, "read write", "person")
    event = Event.objects.get(type="assistant_authorized")
    assert (event.user_pk, event.payload["scope"]) == (ada.pk, "read write")
    assert not is_logged_in(browser, assistant), "A decision ends the login."


def test_an_end_user_can_deny_access(provider: OpenIDProvider, assistant: Assistant) -> None:
    browser = Browser()
    log_in(browser, assistant)
    told = back_from(browser.post(PAGE, {"refuse": ""}, query_params=asked(assistant)))
    assert (told["error"], told["error_description"]) == ("access_denied", "The end user denied the request.")
    assert not Consent.objects.exists() and not UserProfile.objects.exists()


@pytest.mark.slow
def test_a_new_end_user_gets_a_memory_in_the_configured_application(
    provider: OpenIDProvider, assistant: Assistant, settings: Settings
) -> None:
    shop, browser = Application.objects.create(name="shop"), Browser()
    let_log_in(settings, SITE, provider, openid_application="shop")
    log_in(browser, assistant)
    assert "no memory about you yet" in page(browser, assistant) and not UserProfile.objects.exists()
    assert allow(browser, assistant, scope="admin").status_code == 400
    allow(browser, assistant)
    assert UserProfile.objects.get().application == shop == ApiKey.objects.get().application
    let_log_in(settings, SITE, provider, openid_application="gone")
    log_in(browser, assistant)
    for answer in (browser.get(PAGE, query_params=asked(assistant)), allow(browser, assistant)):
        assert answer.status_code == 503 and "Ask your administrator" in answer.content.decode()


def test_the_operators_page_works_next_to_the_login_of_end_users(
    provider: OpenIDProvider, assistant: Assistant, ada: UserProfile, root: Browser
) -> None:
    form = {"user_id": "ada", "scope": ["read"], "days": 30, "allow": ""}
    assert back_from(root.post(OPERATORS, form, query_params=asked(assistant)))["code"]
    assert Consent.objects.get().granted_by == "operator:root"


def test_a_request_that_does_not_fit_into_a_cookie_is_rejected(provider: OpenIDProvider, assistant: Assistant) -> None:
    browser, room = Browser(), end_user.MAX_QUERY_CHARS - len(urlencode(asked(assistant, state="")))
    fits = start(browser, assistant, state="s" * room)
    assert fits.status_code == 302 and len(fits.cookies["oauth_started"].OutputString()) < 4_000
    longer = start(browser, assistant, state="s" * (room + 1))
    assert longer.status_code == 400 and "too long" in longer.content.decode()


def test_without_a_provider_requests_go_to_the_operators_page(assistant: Assistant, settings: Settings) -> None:
    let_ask(settings, SITE)
    for path in (PAGE, LOGIN, CALLBACK):
        assert Browser().get(path, query_params=asked(assistant))["Location"].startswith(f"{OPERATORS}?")
    assert allow(Browser(), assistant)["Location"].startswith(f"{OPERATORS}?")


# --- the grants of an end user ---


@pytest.mark.slow
def test_an_end_user_sees_and_revokes_their_grants(
    provider: OpenIDProvider, assistant: Assistant, ada: UserProfile
) -> None:
    browser = Browser()
    assert GRANTS not in page(browser, assistant)
    log_in(browser, assistant)
    assert GRANTS in page(browser, assistant)
    granted = allow(browser, assistant)
    assert GRANTS in granted.content.decode()
    token = token_of(assistant, back_from(granted)["code"])
    assert "Log in to see which assistants" in browser.get(GRANTS).content.decode(), "The decision has ended the login."
    shown = see_grants(browser)
    assert "Claude" in shown and "Permissions: read write." in shown and "name is not verified" in shown
    consent = Consent.objects.get()
    assert TokenIssuer().key_with(token["access_token"], "/mcp") == consent.key
    assert revoke(browser, consent)["Location"] == GRANTS
    assert "You have given no assistant access" in browser.get(GRANTS).content.decode()
    assert TokenIssuer().key_with(token["access_token"], "/mcp") is None
    refresh = {"grant_type": "refresh_token", "refresh_token": token["refresh_token"], "client_id": assistant.client_id}
    assert Browser().post("/token", refresh).json()["error"] == "invalid_grant"
    event = Event.objects.get(type="assistant_grant_revoked")
    assert (event.user_pk, event.actor, event.payload) == (ada.pk, "person", {"client_id": assistant.client_id})
    revoke(browser, consent)
    assert Event.objects.filter(type="assistant_grant_revoked").count() == 1


def test_row_9_an_end_user_cannot_see_or_revoke_other_grants(
    provider: OpenIDProvider, assistant: Assistant, ada: UserProfile, bo: UserProfile
) -> None:
    other = Application.objects.create(name="other")
    namesake = UserProfile.objects.ensure("ada", other.pk)
    ends_at = timezone.now() + timedelta(days=1)
    granted = [
        Consent.objects.allow(assistant, user=user, scopes=["read"], ends_at=ends_at, by=by)
        for user, by in ((bo, "person"), (namesake, "person"), (ada, "operator:root"))
    ]
    browser, nobody = Browser(), Browser()
    assert "You have given no assistant access" in see_grants(browser)
    for consent in granted:
        for each in (browser, nobody):
            assert revoke(each, consent)["Location"] == GRANTS
        consent.key.refresh_from_db()
        assert consent.key.is_valid()
    assert browser.get(f"{GRANTS}/{granted[0].pk}/revoke").status_code == 405
    assert revoke(Browser(enforce_csrf_checks=True), granted[0]).status_code == 403


def test_an_end_user_logs_out_of_their_grants_and_then_needs_the_password_again(
    provider: OpenIDProvider, assistant: Assistant
) -> None:
    browser = Browser()
    cancelled = browser.get(CALLBACK, query_params=at_provider(browser.get(f"{GRANTS}/login"), "")).content.decode()
    assert "You did not log in." in cancelled and f"{GRANTS}/login" in cancelled
    see_grants(browser)
    out = browser.post(LOGOUT)
    assert out["Location"] == f"{GRANTS}?prompt=login"
    assert f"{GRANTS}/login?prompt=login" in browser.get(out["Location"]).content.decode()
    assert not is_logged_in(browser, assistant)


def test_without_a_provider_no_grants_are_shown(assistant: Assistant, settings: Settings) -> None:
    let_ask(settings, SITE)
    for path in (GRANTS, f"{GRANTS}/login"):
        assert Browser().get(path)["Location"].startswith(OPERATORS)


# --- whose memory ---


def test_row_9_an_end_user_cannot_grant_access_to_another_persons_memory(
    provider: OpenIDProvider, assistant: Assistant, ada: UserProfile, bo: UserProfile
) -> None:
    other, browser = Application.objects.create(name="other"), Browser()
    log_in(browser, assistant)
    wishes = {"user_id": "bo", "user": "bo", "application": str(other.pk), "begins": "on", "sub": "bo"}
    assert allow(browser, assistant, asked(assistant) | wishes, **wishes).status_code == 200
    assert ApiKey.objects.get().user == ada


@pytest.mark.slow
def test_row_9_a_forged_login_is_rejected(
    provider: OpenIDProvider, assistant: Assistant, bo: UserProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Browser()
    started = start(mine, assistant)
    mine.get(CALLBACK, query_params=at_provider(started))
    good = mine.cookies["oauth_user"].value
    forged = [signing.dumps("bo", salt="another"), signing.dumps("bo", key="k", salt="oauth_user"), "bo", f"{good}x"]
    for value in (*forged, started.cookies["oauth_started"].value):
        browser = Browser()
        browser.cookies["oauth_user"] = value
        assert not is_logged_in(browser, assistant)
        assert allow(browser, assistant).status_code == 200 and not Consent.objects.exists()
    monkeypatch.setattr(logins, "LOGIN_SECONDS", -1)
    assert not is_logged_in(mine, assistant), "It has expired."
    allow(mine, assistant)
    assert not Consent.objects.exists()


@pytest.mark.slow
def test_row_9_a_callback_works_only_once_in_the_browser_that_started_the_login(
    provider: OpenIDProvider, assistant: Assistant
) -> None:
    mine, other = Browser(), Browser()
    started = start(mine, assistant)
    cookie, back = started.cookies["oauth_started"].value, at_provider(started, "mallory")
    start(other, assistant)
    wrong: list[Any] = [{"state": "x"}, {"state": ""}, {"state": "é"}, {"state": [back["state"], back["state"]]}]
    for browser, change in [(Browser(), {}), (other, {}), *((mine, change) for change in wrong)]:
        answer = browser.get(CALLBACK, query_params=back | change)
        assert answer.status_code == 400 and "another browser" in answer.content.decode()
        assert not is_logged_in(browser, assistant), "Otherwise, people could be logged in as mallory."
    assert mine.get(CALLBACK, query_params=back).status_code == 302, "Other sites can't interrupt the login."
    assert "another browser" in mine.get(CALLBACK, query_params=back).content.decode()
    mine.cookies["oauth_started"] = cookie
    replayed = mine.get(CALLBACK, query_params=back)
    assert replayed.status_code == 400 and NOT_VERIFIED in replayed.content.decode()


@pytest.mark.slow
def test_row_9_a_code_is_bound_to_its_login_and_provider(provider: OpenIDProvider, assistant: Assistant) -> None:
    mallory, mine = Browser(), Browser()
    answer = mine.get(CALLBACK, query_params=at_provider(start(mine, assistant)) | {"iss": "https://login.example.org"})
    assert NOT_VERIFIED in answer.content.decode() and not is_logged_in(mine, assistant)
    stolen = at_provider(start(mine, assistant))["code"]
    state = at_provider(start(mallory, assistant), "mallory")["state"]
    answer = mallory.get(CALLBACK, query_params={"code": stolen, "state": state})
    assert NOT_VERIFIED in answer.content.decode() and not is_logged_in(mallory, assistant)


FORGERIES: dict[str, dict[str, Any]] = {
    "of another client": {"claims": {"aud": "another"}},
    "for a party at another client": {"claims": {"aud": "another", "azp": CLIENT_ID}},
    "by another party": {"claims": {"azp": "another"}},
    "without an audience": {"claims": {"aud": None}},
    "of another issuer": {"claims": {"iss": "https://login.example.org"}},
    "without an issuer": {"claims": {"iss": None}},
    "expired": {"claims": {"exp": int(time.time()) - 3_600}},
    "without an expiry": {"claims": {"exp": None}},
    "not yet valid": {"claims": {"nbf": int(time.time()) + 3_600}},
    "without a nonce": {"claims": {"nonce": None}},
    "of another login": {"claims": {"nonce": "another"}},
    "without a subject": {"claims": {"sub": None}},
    "without a signature": {"sign": OpenIDProvider.unsigned},
    "signed with the client secret": {"sign": OpenIDProvider.signed_by_secret},
    "signed with an unknown key": {"sign": lambda claims: OpenIDProvider.signed_with(claims, signing_key("other"))},
    "signed with a key of the same name": {
        "sign": lambda claims: OpenIDProvider.signed_with(claims, signing_key("other"), kid="first")
    },
    "not a token": {"sign": lambda claims: "a.b.c"},
}


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=list(FORGERIES))
def test_row_9_a_login_with_an_invalid_id_token_is_rejected(
    provider: OpenIDProvider, assistant: Assistant, forgery: dict[str, Any]
) -> None:
    for name, value in forgery.items():
        setattr(provider, name, value)
    browser = Browser()
    answer = log_in(browser, assistant)
    assert answer.status_code == 400 and NOT_VERIFIED in answer.content.decode()
    assert not is_logged_in(browser, assistant)


@pytest.mark.slow
def test_row_9_the_user_id_is_the_configured_claim_unchanged(
    provider: OpenIDProvider, assistant: Assistant, settings: Settings
) -> None:
    let_log_in(settings, SITE, provider, openid_user_claim="email")
    told = {"email": "ada@example.com", "email_verified": True}
    refused: list[dict[str, Any]] = [
        *({}, told | {"email_verified": False}, told | {"email_verified": "true"}, {"email": "ada@example.com"}),
        *(told | {"email": value} for value in ("", "a/b", "..", 7, None, ["ada"], "a\0b", "a" * 256)),
    ]
    for info in refused:
        browser, provider.user_info = Browser(), info
        answer = log_in(browser, assistant)
        assert answer.status_code == 400 and "no usable user id" in answer.content.decode(), info
        assert not is_logged_in(browser, assistant)
    for email in ("ada@example.com", "Ada@example.com", " ada@example.com"):
        browser, provider.user_info = Browser(), told | {"email": email}
        log_in(browser, assistant)
        allow(browser, assistant)
        assert UserProfile.objects.filter(user_id=email, apikey__consent__granted_by="person").exists()


# --- what an end user can't reach ---


def test_row_18_an_end_user_is_not_an_operator(provider: OpenIDProvider, assistant: Assistant) -> None:
    browser = Browser()
    log_in(browser, assistant, "root")
    operator()  # the superuser `root`
    assert {*browser.cookies} <= {"oauth_user", "oauth_started", "csrftoken"}, "There is no login session."
    assert browser.cookies["oauth_user"]["path"] == PAGE and browser.cookies["oauth_user"]["httponly"]
    assert browser.cookies["oauth_user"]["secure"] and browser.cookies["oauth_user"]["samesite"] == "Lax"
    browser.cookies["sessionid"] = browser.cookies["oauth_user"].value
    for path in ("/admin/", "/admin/sessions_app/apikey/", OPERATORS):
        answer = browser.get(path, query_params=asked(assistant))
        assert answer.status_code == 302 and "/admin/login/" in answer["Location"]
    form = {"user_id": "bo", "scope": ["read"], "days": 30, "allow": "", "begins": "on"}
    assert browser.post(OPERATORS, form, query_params=asked(assistant)).status_code == 302
    assert not Consent.objects.exists()


def test_row_45_an_end_user_grants_access_to_mcp_only(provider: OpenIDProvider, assistant: Assistant) -> None:
    browser = Browser()
    log_in(browser, assistant)
    for resource, scope in ((f"{SITE}/api/v1", "export"), (f"{SITE}/v1", "chat"), ("https://evil.example", "read")):
        query = asked(assistant, resource=resource, scope=scope)
        for answer in (browser.get(PAGE, query_params=query), allow(browser, assistant, query, scope=scope)):
            assert answer.status_code == 302 and answer["Location"].startswith(f"{OPERATORS}?")
    for scope in ("export", "chat", "admin"):
        assert allow(browser, assistant, scope=scope).status_code == 400
    assert not Consent.objects.exists()


def test_row_18_no_other_site_can_make_an_end_user_grant_access(provider: OpenIDProvider, assistant: Assistant) -> None:
    browser = Browser(enforce_csrf_checks=True)
    log_in(browser, assistant)
    shown = browser.get(PAGE, query_params=asked(assistant) | {"allow": "", "days": "30"})
    assert shown["X-Frame-Options"] == "DENY" and "frame-ancestors 'none'" in shown["Content-Security-Policy"]
    assert "no-store" in shown["Cache-Control"]
    assert allow(browser, assistant).status_code == 403 and not Consent.objects.exists()
    assert browser.post(LOGOUT, query_params=asked(assistant)).status_code == 403 and is_logged_in(browser, assistant)


def test_row_36_the_pages_lead_only_to_the_provider_and_to_registered_addresses(
    provider: OpenIDProvider, assistant: Assistant
) -> None:
    browser = Browser()
    for other in ({"redirect_uri": "https://evil.example/"}, {"client_id": "unknown"}, {"redirect_uri": ""}):
        for path in (PAGE, LOGIN):
            answer = browser.get(path, query_params=asked(assistant, **other))
            assert answer.status_code == 400 and "evil" not in answer.content.decode()
    invalid = browser.get(PAGE, query_params=asked(assistant, scope="nothing")).content.decode()
    assert 'http-equiv="refresh"' not in invalid and "Continue" in invalid, "Without a login, only a click leads there."
    assert browser.get(LOGIN, query_params=asked(assistant, scope="nothing")).status_code == 200
    assert provider.requests == []
    back = at_provider(start(browser, assistant, next="https://evil.example/", redirect="//evil.example"))
    answer = browser.get(CALLBACK, query_params=back | {"next": "https://evil.example/"})
    assert answer.status_code == 302 and urlsplit(answer["Location"])[:3] == ("", "", PAGE)
    assert urlsplit(start(browser, assistant)["Location"]).netloc == urlsplit(provider.issuer).netloc


def test_an_end_user_logs_out_and_then_needs_the_password_again(provider: OpenIDProvider, assistant: Assistant) -> None:
    browser = Browser()
    log_in(browser, assistant)
    out = browser.post(LOGOUT, query_params=asked(assistant))
    assert not is_logged_in(browser, assistant) and "prompt=login" in out["Location"]
    again = browser.get(out["Location"]).content.decode()
    assert f"{LOGIN}?" in again and "prompt=login" in again
    httpx2.get(start(browser, assistant, prompt="login")["Location"])
    httpx2.get(start(browser, assistant)["Location"])
    assert provider.prompts == ["login", ""]


@pytest.mark.slow
def test_a_copy_of_a_login_ends_with_the_logout_and_with_a_decision(
    provider: OpenIDProvider, assistant: Assistant
) -> None:
    ends: list[Callable[[Browser], Any]] = [
        lambda browser: browser.post(LOGOUT, query_params=asked(assistant)),
        lambda browser: allow(browser, assistant),
    ]
    for end in ends:
        mine, copy, other = Browser(), Browser(), Browser()
        log_in(mine, assistant)
        log_in(other, assistant)
        copy.cookies["oauth_user"] = mine.cookies["oauth_user"].value
        assert is_logged_in(copy, assistant)
        end(mine)
        assert not is_logged_in(copy, assistant) and is_logged_in(other, assistant)
        assert allow(copy, assistant).status_code == 200 and Consent.objects.count() <= 1


def test_expired_logins_are_deleted(
    provider: OpenIDProvider, assistant: Assistant, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(Browser(), assistant)
    assert Session.objects.update(expire_date=timezone.now()) == 1
    log_in(Browser(), assistant)
    assert Session.objects.count() == 1


def test_a_second_login_ends_the_first(provider: OpenIDProvider, assistant: Assistant) -> None:
    browser, copy = Browser(), Browser()
    log_in(browser, assistant)
    copy.cookies["oauth_user"] = browser.cookies["oauth_user"].value
    log_in(browser, assistant)
    assert is_logged_in(browser, assistant) and not is_logged_in(copy, assistant)


@pytest.mark.slow
def test_row_36_logins_of_end_users_have_a_rate_limit(
    provider: OpenIDProvider, assistant: Assistant, settings: Settings
) -> None:
    settings.ANONYMOUS_RATE = 1
    with live_site() as site:
        let_log_in(settings, site, provider)
        with httpx2.Client(base_url=site) as browser:
            statuses = [browser.get(LOGIN, params=asked(assistant)).status_code for _ in range(15)]
    assert set(statuses) == {302, 429}


# --- the provider ---


@pytest.mark.slow(seconds=15)
def test_row_20_a_provider_that_fails_loses_nothing(
    provider: OpenIDProvider, assistant: Assistant, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: dict[str, Any] = {
        "an error": lambda: ("down", 500),
        "no JSON": lambda: "<html>",
        "a redirect": lambda: flask.redirect(f"{provider.issuer}/elsewhere"),
        "silence": lambda: time.sleep(1),
    }
    monkeypatch.setattr(openid, "SECONDS", 0.3)
    for path in ("/.well-known/openid-configuration", "/token", "/keys"):
        for name, failure in failures.items():
            openid._clients.clear()
            provider.before = partial(_failing, path, failure)
            browser = Browser()
            answer = start(browser, assistant)
            if answer.status_code == 302:
                answer = browser.get(CALLBACK, query_params=at_provider(answer))
            assert answer.status_code in (400, 503), (path, name)
            text = answer.content.decode()
            assert f"{LOGIN}?" in text and assistant.client_id in text and "Log in" in text, (path, name)
            provider.before = lambda asked: None
            openid._clients.clear()
            log_in(browser, assistant)
            assert is_logged_in(browser, assistant), (path, name)
    assert "/elsewhere" not in provider.requests


def _failing(path: str, failure: Callable[[], Any], asked: str) -> Any:
    return failure() if asked == path else None


def test_row_20_a_login_leaves_no_secret_in_the_log(
    provider: OpenIDProvider, assistant: Assistant, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    browser, secrets = Browser(), [CLIENT_SECRET]
    for claims in ({}, {"aud": "another"}):
        provider.claims = claims
        started = start(browser, assistant)
        secrets += signing.loads(started.cookies["oauth_started"].value, salt="oauth_started").values()
        back = at_provider(started)
        browser.get(CALLBACK, query_params=back)
        secrets.append(back["code"])
    ours = [record for record in caplog.records if not record.name.startswith(("werkzeug", "http"))]  # not the test's
    told = "\n".join(record.getMessage() for record in ours)
    assert "a login at the OpenID provider failed" in told and not [text for text in secrets if text in told]


def test_a_login_that_is_cancelled_at_the_provider_can_be_repeated(
    provider: OpenIDProvider, assistant: Assistant
) -> None:
    browser = Browser()
    answer = log_in(browser, assistant, "")
    assert answer.status_code == 200 and "You did not log in." in answer.content.decode()
    assert f"{LOGIN}?" in answer.content.decode() and not is_logged_in(browser, assistant)


@pytest.mark.slow
def test_row_29_a_slow_provider_occupies_few_threads_for_a_limited_time(
    provider: OpenIDProvider, assistant: Assistant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openid, "SECONDS", 600)  # as if each part of a response arrived in time
    monkeypatch.setattr(openid, "TOTAL_SECONDS", 1)
    monkeypatch.setattr(openid, "BUSY_SECONDS", 0)
    go_on = threading.Event()
    provider.before = lambda path: go_on.wait(30) and None
    try:
        with ThreadPoolExecutor(openid.MAX_CONCURRENT_CALLS + 1) as people:
            results = [people.submit(openid.start) for _ in range(openid.MAX_CONCURRENT_CALLS + 1)]
            errors = sorted(str(result.exception()) for result in results)
    finally:
        go_on.set()
    silent = "The login service of your organization doesn't respond. Try again."
    assert errors == [silent] * openid.MAX_CONCURRENT_CALLS + [
        "Too many people are logging in at the moment. Try again."
    ]
    for _ in range(openid.MAX_CONCURRENT_CALLS):  # until both calls have ended
        assert openid._free_slots.acquire(timeout=30)
    openid._free_slots.release(openid.MAX_CONCURRENT_CALLS)


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://login.example.org"},
        {"token_endpoint": "http://login.example.org/token"},
        {"jwks_uri": "http://login.example.org/keys"},
        {"authorization_endpoint": "http://login.example.org/authorize"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"token_endpoint_auth_methods_supported": ["private_key_jwt"]},
        {"token_endpoint": None},
    ],
)
def test_row_20_a_discovery_document_must_be_the_issuers_and_use_https(
    provider: OpenIDProvider, assistant: Assistant, metadata: dict[str, Any]
) -> None:
    provider.metadata = metadata
    answer = start(Browser(), assistant)
    assert answer.status_code in (400, 503) and "Location" not in answer


@pytest.mark.slow
def test_the_discovery_document_is_cached_and_new_signing_keys_are_fetched(
    provider: OpenIDProvider, assistant: Assistant
) -> None:
    for key in ("first", "second", "second"):
        provider.key = signing_key(key)
        browser = Browser()
        log_in(browser, assistant)
        assert is_logged_in(browser, assistant)
    assert provider.requests.count("/.well-known/openid-configuration") == 1 and provider.requests.count("/keys") == 2


@pytest.mark.parametrize(
    "key",
    [
        {"kty": "EC", "crv": "brainpoolP256r1", "x": "AA", "y": "AA", "kid": "curve"},
        {"kty": "OKP", "crv": "Ed9", "x": "AA", "kid": "curve"},
        {"kty": "RSA", "n": "AA", "e": "AQAB", "use": "later", "kid": "use"},
        {"kid": "nothing else"},
        None,
    ],
)
def test_unknown_keys_of_the_provider_are_skipped(provider: OpenIDProvider, assistant: Assistant, key: Any) -> None:
    provider.other_keys, browser = [key], Browser()
    log_in(browser, assistant)
    assert is_logged_in(browser, assistant)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ISSUER": "http://login.example.com"}, "OAUTH__OPENID_ISSUER: "),
        ({"ISSUER": "http://localhost.example.com"}, "OAUTH__OPENID_ISSUER: "),
        ({"ISSUER": "https://login.example.com?x"}, "OAUTH__OPENID_ISSUER: "),
        ({"CLIENT_ID": ""}, "needs OAUTH__OPENID_CLIENT_ID and"),
        ({"CLIENT_SECRET": ""}, "needs OAUTH__OPENID_CLIENT_ID and"),
        ({"ISSUER": ""}, "OAUTH__OPENID_ISSUER is missing"),
        ({"USER_CLAIM": ""}, "OAUTH__OPENID_USER_CLAIM: "),
    ],
)
def test_wrong_settings_of_the_provider_stop_the_start(change: dict[str, str], reason: str) -> None:
    whole = {"ISSUER": "https://login.example.com/org", "CLIENT_ID": "memory", "CLIENT_SECRET": CLIENT_SECRET}
    site = {"EXTRAS": "oauth", "OAUTH__SITE": SITE}
    conf.load(site | {f"OAUTH__OPENID_{name}": value for name, value in whole.items()})
    with pytest.raises(ImproperlyConfigured, match=reason) as refused:
        conf.load(site | {f"OAUTH__OPENID_{name}": value for name, value in (whole | change).items()})
    assert CLIENT_SECRET not in str(refused.value)
    with pytest.raises(ImproperlyConfigured, match="needs OAUTH__SITE"):
        conf.load({"EXTRAS": "oauth"} | {f"OAUTH__OPENID_{name}": value for name, value in whole.items()})


UNKNOWN = "OAUTH__OPENID_APPLICATION: There is no application 'shop'. Create it with manage.py create_application"


def with_application(name: str) -> dict[str, str]:
    """Return the environment of a site whose end users belong to this application."""
    return environment(
        EXTRAS="oauth",
        OAUTH__SITE=SITE,
        OAUTH__OPENID_ISSUER="https://login.example.com",
        OAUTH__OPENID_CLIENT_ID=CLIENT_ID,
        OAUTH__OPENID_CLIENT_SECRET=CLIENT_SECRET,
        OAUTH__OPENID_APPLICATION=name,
    )


@pytest.mark.slow
def test_a_web_server_does_not_start_if_the_application_is_unknown(settings: Settings) -> None:
    variables, bind = with_application("shop"), f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "gunicorn", "-c", "python:memoryproject.gunicorn_conf", "--bind", bind]
    ended = subprocess.run(
        [*command, "memoryproject.asgi"],
        cwd=BASE_DIR,
        env=variables | {"WEB_WORKERS": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert ended.returncode != 0 and UNKNOWN in ended.stderr and "Traceback" not in ended.stderr
    settings.OAUTH = OAuthSettings.model_construct(openid_application="shop")
    with pytest.raises(SystemCheckError, match=UNKNOWN.partition(" Create")[0]):
        call_command("check", databases=["default"])
    call_command("create_application", "shop")
    call_command("check", databases=["default"])
    with web_at(free_port(), variables):
        pass


@pytest.mark.slow
def test_run_does_not_start_if_the_application_is_unknown(settings: Settings, tmp_path: Path) -> None:
    settings.DATA_DIR, settings.DATABASE_IS_EMBEDDED = tmp_path, False
    settings.OAUTH = OAuthSettings.model_construct(openid_application="shop")
    with pytest.raises(CommandError, match=re.escape(UNKNOWN)):
        call_command("run", port=free_port())


def test_the_application_is_not_checked_before_the_first_migration(settings: Settings) -> None:
    settings.OAUTH = OAuthSettings.model_construct(openid_application="shop")
    with empty_database():
        assert run_checks(tags=[Tags.database], databases=["default"]) == []
