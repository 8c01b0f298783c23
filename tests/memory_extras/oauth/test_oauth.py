"""Assistants that request a key by OAuth, correctly and incorrectly. `test_mcp` uses the SDK's client."""

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import Client as Browser
from django.urls import reverse
from django.utils import timezone
from pytest_django.fixtures import Settings

from memory_extras.oauth.models import AccessToken, Assistant, Code, Consent, RefreshToken
from sessions_app.models import ApiKey, Application, Event, LoginLimit, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.people.erase import erase_user
from tests.support.commands import printed
from tests.support.concurrency import wait_until_somebody_waits
from tests.support.daily_limits import limit
from tests.support.live import live_site
from tests.support.oauth import BACK, VERIFIER, asked, back_from, let_ask
from tests.support.operator import operator

pytestmark = pytest.mark.django_db(transaction=True)

SITE = "https://memory.example.com"
REST = f"{SITE}/api/v1"
AUTHORIZE = "/admin/sessions_app/apikey/authorize/"


@pytest.fixture(autouse=True)
def _on(settings: Settings) -> None:
    let_ask(settings, SITE, open_registration=True)


@pytest.fixture
def assistant(transactional_db: None) -> Assistant:
    return Assistant.objects.register("Claude", [BACK], registered_itself=True)


def allow(browser: Browser, client: Assistant, query: dict[str, str] | None = None, **form: Any) -> Any:
    given = {"user_id": "ada", "scope": ["read", "write"], "days": 30, "allow": ""} | form
    return browser.post(AUTHORIZE, given, query_params=query or asked(client, resource=REST))


def token(**form: str | list[str]) -> Any:
    return Browser().post("/token", form)


def fetch(client: Assistant, code: str, **other: str | list[str]) -> Any:
    whole = {"grant_type": "authorization_code", "code": code, "client_id": client.client_id, "redirect_uri": BACK}
    return token(**whole | {"code_verifier": VERIFIER} | other)


def refresh(client: Assistant, text: str, **other: str) -> Any:
    return token(**{"grant_type": "refresh_token", "refresh_token": text, "client_id": client.client_id} | other)


def opens(key: str) -> bool:
    return Browser().get("/api/v1/facts", headers={"Authorization": f"Bearer {key}"}).status_code == 200


def granted(browser: Browser, client: Assistant, **form: Any) -> dict[str, Any]:
    """Return the tokens of a correct client."""
    answer = fetch(client, back_from(allow(browser, client, **form))["code"])
    assert answer.status_code == 200, answer.content
    return dict(answer.json())


def test_a_client_without_a_key_is_directed_to_the_authorization_server(
    transactional_db: None, settings: Settings
) -> None:
    with live_site() as site:
        let_ask(settings, site)
        _told_at(site)


def _told_at(site: str) -> None:
    refused = httpx2.post(f"{site}/mcp", json={}, headers={"Accept": "application/json, text/event-stream"})
    where = re.search(r'resource_metadata="([^"]+)"', refused.headers["WWW-Authenticate"])
    assert refused.status_code == 401 and where
    told = httpx2.get(where[1]).json()
    assert (told["resource"], told["authorization_servers"]) == (f"{site}/mcp", [site])
    server = httpx2.get(f"{site}/.well-known/oauth-authorization-server").json()
    assert server["issuer"] == site and server["code_challenge_methods_supported"] == ["S256"]
    assert server["authorization_response_iss_parameter_supported"] and "registration_endpoint" not in server
    asking = httpx2.get(f"{server['authorization_endpoint']}?client_id=x")
    assert asking.headers["Location"] == f"{AUTHORIZE}?client_id=x"


def test_the_page_requires_a_login_and_keeps_the_request(assistant: Assistant) -> None:
    answer = Browser().get(AUTHORIZE, query_params=asked(assistant))
    assert answer.status_code == 302 and "/login/?next=" in answer["Location"]
    assert assistant.client_id in answer["Location"]
    editor = operator(group="editors")
    assert editor.get(AUTHORIZE, query_params=asked(assistant)).status_code == 403
    assert allow(editor, assistant, begins="on").status_code == 403
    assert not Consent.objects.exists()


def test_the_operator_chooses_person_scope_and_expiry(root: Browser, assistant: Assistant, ada: UserProfile) -> None:
    tokens = granted(root, assistant, scope="read", days=2)
    assert (tokens["token_type"], tokens["expires_in"], tokens["scope"]) == ("Bearer", 3_600, "read")
    key = ApiKey.objects.get()
    assert (key.user, key.scope, key.name) == (ada, "read", "Claude")
    assert key.expires_at and key.expires_at - timezone.now() < timedelta(days=2)
    assert Consent.objects.get().granted_by == "operator:root"
    headers = {"Authorization": f"Bearer {tokens['access_token']}"}
    added = {"kind": "task", "title": "t"}
    answer = Browser().post("/api/v1/entities", added, content_type="application/json", headers=headers)
    assert answer.status_code == 403 and opens(tokens["access_token"])
    told = back_from(root.post(AUTHORIZE, {"refuse": ""}, query_params=asked(assistant)))
    assert (told["error"], told["state"], told["iss"]) == ("access_denied", "s", SITE)


@pytest.mark.slow
def test_a_person_is_created_only_on_request_in_the_chosen_application(root: Browser, assistant: Assistant) -> None:
    other = Application.objects.create(name="other")
    there: dict[str, Any] = {"user_id": "nobody", "application": other.pk}
    for name in ("nobody", "a/b", ".."):
        answer = allow(root, assistant, **there | {"user_id": name})
        assert answer.status_code == 400 and not UserProfile.objects.exists()
    there |= {"begins": "on"}
    granted(root, assistant, **there)
    assert UserProfile.objects.get().application == other == ApiKey.objects.get().application
    for form in ({"days": 366}, {"days": 0}, {"scope": "admin"}, {"application": 99}, {"application": ""}):
        assert allow(root, assistant, **there | form).status_code == 400
    assert allow(root, assistant, asked(assistant, scope="read"), **there | {"scope": "write"}).status_code == 400
    assert ApiKey.objects.count() == 1


@pytest.mark.parametrize(
    ("other", "error"),
    [
        ({"response_type": "token"}, "unauthorized_client"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge": ""}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"scope": "read admin"}, "invalid_scope"),
        ({"scope": "read export"}, "invalid_scope"),
        ({"scope": "chat"}, "invalid_scope"),
        ({"response_mode": "fragment"}, "invalid_request"),
        ({"response_mode": "form_post"}, "invalid_request"),
        ({"resource": "https://elsewhere.example.com/mcp"}, "invalid_target"),
    ],
)
def test_an_invalid_request_is_reported_to_the_assistant(
    root: Browser, assistant: Assistant, ada: UserProfile, other: dict[str, str], error: str
) -> None:
    query = asked(assistant, **other)
    for answer in (root.get(AUTHORIZE, query_params=query), allow(root, assistant, query)):
        assert back_from(answer)["error"] == error
    assert not Consent.objects.exists()


@pytest.mark.parametrize(
    "other",
    [
        {"redirect_uri": f"{BACK}/"},
        {"redirect_uri": f"{BACK}?x=1"},
        {"redirect_uri": "http://localhost:3334/callback"},
        {"redirect_uri": "https://evil.example.com/"},
        {"redirect_uri": ""},
        {"client_id": "unknown"},
        {"client_id": "a\0b"},
    ],
)
def test_row_36_only_the_exact_address_of_the_assistant_gets_a_redirect(
    root: Browser, assistant: Assistant, ada: UserProfile, other: dict[str, str]
) -> None:
    query = asked(assistant, **other)
    for answer in (root.get(AUTHORIZE, query_params=query), allow(root, assistant, query)):
        assert answer.status_code == 400
        assert "http-equiv" not in answer.content.decode() and "evil" not in answer.content.decode()
    assert not Consent.objects.exists()


@pytest.mark.slow
def test_row_35_an_operator_of_one_application_cannot_grant_memory_in_another(
    assistant: Assistant, ada: UserProfile
) -> None:
    other = Application.objects.create(name="other")
    eve = operator("add_apikey", "view_")
    LoginLimit.objects.create(login=User.objects.get(pk=eve.session["_auth_user_id"]), application=other)
    sent: list[dict[str, Any]] = [{}, {"application": DEFAULT}]
    for elsewhere in sent:
        for user_id in ("ada", "new"):
            answer = allow(eve, assistant, **elsewhere, user_id=user_id, begins="on")
            assert answer.status_code == 400, "The request must name one of the operator's applications."
    assert not Consent.objects.exists() and list(UserProfile.objects.all()) == [ada]
    assert granted(eve, assistant, application=other.pk, begins="on")["scope"] == "read write"
    assert ApiKey.objects.get().application == other


def test_row_36_no_other_site_can_make_an_operator_grant_access(assistant: Assistant, ada: UserProfile) -> None:
    browser = Browser(enforce_csrf_checks=True)
    browser.force_login(User.objects.create_superuser("root"))
    shown = browser.get(AUTHORIZE, query_params=asked(assistant))
    assert shown["X-Frame-Options"] == "DENY" and "frame-ancestors 'none'" in shown["Content-Security-Policy"]
    assert "form-action 'self'" in shown["Content-Security-Policy"]
    assert allow(browser, assistant).status_code == 403 and not Consent.objects.exists()
    link = asked(assistant) | {"user_id": "ada", "scope": "read write", "days": "30", "allow": ""}
    assert browser.get(AUTHORIZE, query_params=link).status_code == 200
    assert not Consent.objects.exists(), "A link alone grants nothing."


def test_row_36_codes_and_tokens_cannot_extend_a_grant(root: Browser, assistant: Assistant, ada: UserProfile) -> None:
    code = back_from(allow(root, assistant, scope="read"))["code"]
    wider = {"user_id": "bo", "application": "2", "expires_in": "99999999"}
    first = fetch(assistant, code, **wider | {"scope": "read write"}).json()
    assert refresh(assistant, first["refresh_token"], scope="read write").json()["error"] == "invalid_scope"
    second = refresh(assistant, first["refresh_token"], **wider).json()
    assert [one["scope"] for one in (first, second)] == ["read", "read"]
    assert [one["expires_in"] for one in (first, second)] == [3_600, 3_600]
    assert ApiKey.objects.get().user == ada
    elsewhere = {"resource": "https://elsewhere.example.com/mcp"}
    assert refresh(assistant, second["refresh_token"], **elsewhere).json()["error"] == "invalid_target"


def test_row_36_a_granted_key_has_the_usual_limits(root: Browser, assistant: Assistant, ada: UserProfile) -> None:
    text = granted(root, assistant)["access_token"]
    limit(ApiKey.objects.get(), requests=1)
    assert opens(text) and not opens(text), "The limit is one request per day."


@pytest.mark.slow
def test_row_36_a_code_works_once_for_its_assistant_and_expires_after_a_minute(
    root: Browser, assistant: Assistant, ada: UserProfile
) -> None:
    thief = Assistant.objects.register("Thief", [BACK], registered_itself=True)
    wrong: list[dict[str, str]] = [
        {"code_verifier": "w" * 43},
        {"redirect_uri": f"{BACK}/"},
        {"client_id": thief.client_id},
        {"redirect_uri": ""},
    ]
    for other in wrong:
        code = back_from(allow(root, assistant))["code"]
        assert fetch(assistant, code, **other).json()["error"] in ("invalid_grant", "invalid_request")
        assert fetch(assistant, code).json()["error"] == "invalid_grant", "The failed attempt invalidated the code."
    code = back_from(allow(root, assistant))["code"]
    Code.objects.update(expires=timezone.now())
    assert fetch(assistant, code).json()["error"] == "invalid_grant"
    code = back_from(allow(root, assistant))["code"]
    key = fetch(assistant, code).json()["access_token"]
    assert opens(key)
    assert fetch(assistant, code).status_code == 400 and not opens(key), "Presenting the code again ends the grant."
    assert fetch(assistant, "made-up").json()["error"] == "invalid_grant"


@pytest.mark.slow
def test_row_36_a_request_with_a_repeated_parameter_gets_no_token(
    root: Browser, assistant: Assistant, ada: UserProfile
) -> None:
    for name, other in (("code", "made-up"), ("code_verifier", VERIFIER), ("scope", "read"), ("resource", REST)):
        code = back_from(allow(root, assistant))["code"]
        whole: dict[str, Any] = {"code": code, "code_verifier": VERIFIER, "scope": "read", "resource": REST}
        twice = {name: [other, whole[name]]}
        assert fetch(assistant, **whole | twice).json()["error"] == "invalid_request"
        assert fetch(assistant, code).json()["error"] == "invalid_grant", "The failed attempt invalidated the code."


def test_row_36_a_code_needs_its_redirect_uri(root: Browser, assistant: Assistant, ada: UserProfile) -> None:
    whole = {"grant_type": "authorization_code", "client_id": assistant.client_id, "code_verifier": VERIFIER}
    answer = token(**whole, code=back_from(allow(root, assistant))["code"])
    assert answer.status_code == 400 and answer.json()["error"] == "invalid_request"


@pytest.mark.slow
def test_row_36_a_refresh_token_works_once_for_its_assistant_until_the_key_expires(
    root: Browser, assistant: Assistant, ada: UserProfile
) -> None:
    thief = Assistant.objects.register("Thief", [BACK], registered_itself=True)
    first = granted(root, assistant)
    assert refresh(thief, first["refresh_token"]).status_code == 400 and opens(first["access_token"])
    second = refresh(assistant, first["refresh_token"]).json()
    assert opens(second["access_token"]) and not opens(first["access_token"])
    assert refresh(assistant, first["refresh_token"]).status_code == 400
    assert not opens(second["access_token"]), "Reusing a refresh token ends the grant."
    assert refresh(assistant, second["refresh_token"]).status_code == 400
    third = granted(root, assistant)
    ApiKey.objects.update(expires_at=timezone.now())
    assert refresh(assistant, third["refresh_token"]).status_code == 400


@pytest.mark.slow
def test_a_key_can_be_revoked_by_operator_or_client_and_ends_with_its_person(
    root: Browser, assistant: Assistant, ada: UserProfile
) -> None:
    tokens = granted(root, assistant)
    key = ApiKey.objects.get()
    root.post(reverse("admin:sessions_app_apikey_revoke", args=[key.pk]))
    assert not opens(tokens["access_token"]) and refresh(assistant, tokens["refresh_token"]).status_code == 400
    for shown in ("access_token", "refresh_token"):
        tokens = granted(root, assistant)
        elsewhere = Browser().post("/revoke", {"token": tokens[shown], "client_id": "another"})
        other = Assistant.objects.register("Other", [BACK])
        assert Browser().post("/revoke", {"token": tokens[shown], "client_id": other.client_id}).status_code == 200
        assert elsewhere.status_code == 401 and opens(tokens["access_token"])
        Browser().post("/revoke", {"token": tokens[shown], "client_id": assistant.client_id})
        assert not opens(tokens["access_token"])
    tokens = granted(root, assistant)
    assert erase_user("ada", application=DEFAULT, actor="test").rows["OAuth grants"] == 4
    assert not opens(tokens["access_token"]) and not Consent.objects.exists()


@pytest.mark.slow
def test_a_revoked_assistant_loses_its_keys_and_cannot_request_new_ones(
    root: Browser, assistant: Assistant, ada: UserProfile
) -> None:
    tokens = granted(root, assistant)
    waiting = back_from(allow(root, assistant))["code"]
    ApiKey.objects.filter(consent__code__used_at=None).update(last_used_at=timezone.now())
    page = reverse("admin:oauth_assistant_change", args=[assistant.pk])
    listed = root.get(reverse("admin:oauth_assistant_changelist")).content.decode()
    assert BACK in listed and "Claude" in listed and "now" in listed
    assert all(
        text in root.get(page).content.decode() for text in (BACK, "read write for ada", "Revoke this assistant")
    )
    revoke = reverse("admin:oauth_assistant_revoke", args=[assistant.pk])
    assert operator(group="editors").post(revoke).status_code == 403 and opens(tokens["access_token"])
    root.post(revoke)
    assert not opens(tokens["access_token"]) and fetch(assistant, waiting).status_code == 401
    assert refresh(assistant, tokens["refresh_token"]).status_code == 401
    assert "isn&#x27;t registered" in root.get(AUTHORIZE, query_params=asked(assistant)).content.decode()
    assert allow(root, assistant).status_code == 400 and Consent.objects.count() == 2
    assert "was already revoked" in root.post(revoke, follow=True).content.decode()
    event = Event.objects.get(type="assistant_revoked")
    assert (event.actor, event.payload) == ("operator:root", {"client_id": assistant.client_id, "keys": 2})


@pytest.mark.slow
def test_a_key_issued_during_a_revocation_is_revoked(root: Browser, assistant: Assistant, ada: UserProfile) -> None:
    codes = [back_from(allow(root, assistant))["code"] for _ in range(2)]

    def end() -> int | None:
        try:
            return assistant.revoke(by="test")
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as other:
        with transaction.atomic():
            assert Assistant.objects.exists()  # keeps the role of the transaction, which sees waiting sessions
            tokens = fetch(assistant, codes[0]).json()
            ending = other.submit(end)
            wait_until_somebody_waits()
        assert ending.result() == 2 and not opens(tokens["access_token"])
    ApiKey.objects.update(revoked_at=None)  # as if it was granted at that moment, unseen by the revocation
    assert fetch(assistant, codes[1]).status_code == 401


def test_row_19_codes_and_tokens_are_stored_only_as_hashes(
    root: Browser, assistant: Assistant, ada: UserProfile
) -> None:
    code = back_from(allow(root, assistant))["code"]
    tokens = fetch(assistant, code).json()
    tables: list[Any] = [ApiKey, Assistant, Consent, Code, AccessToken, RefreshToken]
    told = "".join(str(list(table.objects.values())) for table in tables)
    assert not any(text in told for text in (code, tokens["access_token"], tokens["refresh_token"], VERIFIER))


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"redirect_uris": []}',
        b'{"redirect_uris": "https://x.example.com"}',
        b'{"redirect_uris": ["https://x.example.com"], "client_name": "a\\u0000b"}',
        *(
            b'{"redirect_uris": ["%s"]}' % uri
            for uri in (
                b"javascript:alert(1)",
                b"http://x.example.com/",
                b"http://localhost:port/",
                b"https://a@b/",
                b"https://x/#f",
                b"data:x",
                b"//x",
            )
        ),
    ],
)
def test_a_registration_with_invalid_redirect_uris_is_rejected(transactional_db: None, body: bytes) -> None:
    answer = Browser().post("/register", body, content_type="application/json")
    assert answer.status_code == 400 and answer.json()["error"].startswith("invalid_")
    assert not Assistant.objects.exists()


def test_errors_of_assistants_name_the_field_and_its_limit(transactional_db: None) -> None:
    many = {"redirect_uris": [f"{BACK}/{number}" for number in range(11)]}
    told = Browser().post("/register", many, content_type="application/json").json()["error_description"]
    assert told == "redirect_uris: Ensure this field has no more than 10 elements."
    answer = Browser().post("/token", {"grant_type": "refresh_token"}, content_type="application/json").json()
    assert "grant_type must be one of" in answer["error_description"]


def test_open_registration_can_be_disabled_and_an_operator_can_always_register(
    settings: Settings, root: Browser, ada: UserProfile, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"redirect_uris": [BACK], "client_name": "Mine", "grant_types": ["authorization_code"]}
    monkeypatch.setattr("memory_extras.oauth.views.MAX_UNUSED", 1)
    answers = [Browser().post("/register", said, content_type="application/json") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 400]
    assert answers[0].json()["token_endpoint_auth_method"] == "none"
    Assistant.objects.update(created=timezone.now() - timedelta(minutes=11))
    assert Browser().post("/register", said, content_type="application/json").status_code == 201
    itself = Assistant.objects.get()
    let_ask(settings, SITE)
    assert Browser().post("/register", said, content_type="application/json").status_code == 404
    assert "registration_endpoint" not in Browser().get("/.well-known/oauth-authorization-server").json()
    client = Assistant.objects.get(client_id=printed("register_assistant", "Cursor", redirect=[BACK]).strip())
    pages = [root.get(AUTHORIZE, query_params=asked(one)).content.decode() for one in (client, itself)]
    assert ["is not verified" in page for page in pages] == [False, True]
    assert granted(root, client)["scope"] == "read write"
    with pytest.raises(CommandError):
        call_command("register_assistant", "x", redirect=["javascript:x"])
    with pytest.raises(CommandError, match="The name must have 1 to 255 characters"):
        call_command("register_assistant", "x" * 256, redirect=[BACK])


def test_oauth_is_off_without_its_setting(settings: Settings, root: Browser, assistant: Assistant) -> None:
    let_ask(settings, "")
    for path in ("oauth-protected-resource", "oauth-protected-resource/mcp", "oauth-authorization-server"):
        assert Browser().get(f"/.well-known/{path}").status_code == 404
    for path in ("register", "token", "revoke"):
        assert Browser().post(f"/{path}", {}).status_code == 404
    assert root.get(AUTHORIZE, query_params=asked(assistant)).status_code == 302
    assert allow(root, assistant, begins="on").status_code == 302 and not Consent.objects.exists()


def test_an_invalid_token_request_is_rejected(transactional_db: None) -> None:
    device = "urn:ietf:params:oauth:grant-type:device_code"
    kinds = [*("password", "client_credentials", device, "authorization_code"), ["a", "b"]]
    for form in ({}, *({"grant_type": kind} for kind in kinds)):
        answer = Browser().post("/token", form)
        assert answer.status_code == 400 and "no-store" in answer["Cache-Control"]
        assert answer.json()["error"] in ("invalid_request", "unsupported_grant_type")
    nobody = {"grant_type": "refresh_token", "refresh_token": "x", "client_id": "a\0b"}
    assert token(**nobody).json()["error"] == "invalid_client"
    assert Browser().get("/token").status_code == 405
