"""The admin pages of people, keys and logins."""

import re
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from moments_app.models import Vocabulary
from sessions_app.models import ApiKey, Event, UserProfile
from sessions_app.models.event import USER_READ
from sessions_app.people.erase import erase_user
from tests.support.api import Api
from tests.support.operator import operator

pytestmark = pytest.mark.django_db(transaction=True)

KEYS = reverse("admin:sessions_app_apikey_changelist")
EVENTS = reverse("admin:sessions_app_event_changelist")
NEW_KEY = reverse("admin:sessions_app_apikey_add")


def profile_url(user: UserProfile) -> str:
    return reverse("admin:sessions_app_userprofile_change", args=[user.pk])


def key_url(key: ApiKey, verb: str = "change") -> str:
    return reverse(f"admin:sessions_app_apikey_{verb}", args=[key.pk])


@pytest.mark.parametrize("listed", ["sessions_app_apikey", "sessions_app_dailylimit", "moments_app_moment"])
def test_the_history_of_an_unknown_row_is_403(root: Client, listed: str) -> None:
    assert root.get(reverse(f"admin:{listed}_history", args=[999])).status_code == 403


def test_row_19_a_key_is_shown_once_and_works(root: Client, ada: UserProfile) -> None:
    data = {"name": "a partner", "user": ada.pk, "scope": "read", "expires_at_0": "", "expires_at_1": ""}
    answer = root.post(NEW_KEY, data)
    found = re.search(r'value="(mem_\S+?)"', answer.content.decode())
    assert found
    assert Api(found[1]).get("users/ada").status_code == 200
    assert Api(found[1]).get("users/bo").status_code == 404
    assert "no-store" in answer["Cache-Control"]
    assert not any(found[1] in str(cookie) for cookie in answer.cookies.values())
    key = ApiKey.objects.get()
    for url in (KEYS, key_url(key)):
        later = root.get(url).content.decode()
        assert "a partner" in later and found[1] not in later
    history = LogEntry.objects.get()
    assert found[1] not in f"{history.object_repr} {history.change_message}"


def test_an_expiry_in_the_past_is_rejected(root: Client) -> None:
    data = {"name": "late", "scope": "read", "expires_at_0": "2020-01-01", "expires_at_1": "00:00:00"}
    assert "must be in the future" in root.post(NEW_KEY, data).content.decode()
    assert not ApiKey.objects.exists()


def test_revoked_keys_stop_working_at_once(root: Client, ada: UserProfile) -> None:
    (first, first_text), (second, second_text) = ApiKey.objects.issue("first"), ApiKey.objects.issue("second")
    assert Api(first_text).get("users/ada").status_code == 200
    selected = {"action": "revoke", "_selected_action": [first.pk]}
    asked = root.post(KEYS, selected).content.decode()
    assert "<li>first" in asked and "<li>second" not in asked
    assert Api(first_text).get("users/ada").status_code == 200
    assert all(f'name="{name}"' in asked for name in ("action", "_selected_action", "sure"))
    shown = root.post(KEYS, selected | {"sure": "1"}, follow=True).content.decode()
    assert "is revoked." in shown
    shown = root.post(key_url(second, "revoke"), follow=True).content.decode()
    assert "The key was revoked at" in shown and key_url(second, "revoke") not in shown
    assert "was already revoked" in root.post(key_url(second, "revoke"), follow=True).content.decode()
    assert {Api(text).get("users/ada").status_code for text in (first_text, second_text)} == {401}
    assert [entry.get_change_message() for entry in LogEntry.objects.all()] == ["Revoked.", "Revoked."]


@pytest.mark.slow
def test_a_key_shows_its_state_person_and_last_use(root: Client, ada: UserProfile) -> None:
    active, _ = ApiKey.objects.issue("active one", user=ada)
    expired, _ = ApiKey.objects.issue("expired one", expires_at=timezone.now() - timedelta(days=1))
    revoked, _ = ApiKey.objects.issue("revoked one")
    revoked.revoke()
    active.touch()
    keys = {"active": active, "expired": expired, "revoked": revoked}
    for state in keys:
        shown = root.get(KEYS, {"state": state}).content.decode()
        assert [name for name, key in keys.items() if f"{name} one" in shown] == [state]
    shown = root.get(key_url(active)).content.decode()
    assert profile_url(ada) in shown and "now" in shown and "also append messages and edit" in shown
    assert "any user" in root.get(key_url(expired)).content.decode()


def test_a_key_cannot_be_edited_or_deleted(root: Client) -> None:
    key, _ = ApiKey.objects.issue("settled", scope="read")
    root.post(reverse("admin:sessions_app_apikey_change", args=[key.pk]), {"name": "x", "scope": "admin"})
    root.post(reverse("admin:sessions_app_apikey_delete", args=[key.pk]), {"post": "yes"})
    assert list(ApiKey.objects.values_list("name", "scope")) == [("settled", "read")]


def test_row_18_a_viewer_cannot_create_or_revoke_keys(transactional_db: None) -> None:
    viewer = operator("view_")
    key, _ = ApiKey.objects.issue("stays")
    assert viewer.get(KEYS).status_code == 200
    assert viewer.post(NEW_KEY, {"name": "mine", "scope": "admin"}).status_code == 403
    viewer.post(KEYS, {"action": "revoke", "_selected_action": [key.pk], "sure": "1"})
    assert viewer.post(key_url(key, "revoke")).status_code == 403
    assert key_url(key, "revoke") not in viewer.get(key_url(key)).content.decode()
    assert list(ApiKey.objects.values_list("name", "revoked_at")) == [("stays", None)]


def test_an_operator_can_edit_a_profile(root: Client, ada: UserProfile) -> None:
    data = {
        "summary": "Ada lives in Turin.",
        "interests": "kilns\nverbs",
        "preferred_topics": "",
        "timezone": "Europe/Rome",
        "metadata": "{}",
        "user_id": "forged",
    }
    assert root.post(profile_url(ada), data).status_code == 302
    ada.refresh_from_db()
    assert (ada.user_id, ada.summary, ada.interests) == ("ada", "Ada lives in Turin.", ["kilns", "verbs"])


def test_an_unknown_time_zone_is_rejected_and_nothing_is_stored(root: Client, ada: UserProfile) -> None:
    data = {"summary": "x", "interests": "", "preferred_topics": "", "timezone": "Mars/Base", "metadata": "{}"}
    assert "Mars/Base" in root.post(profile_url(ada), data).content.decode()
    ada.refresh_from_db()
    assert ada.summary == ""


@pytest.mark.parametrize("page", ["auth_user", "auth_group", "sessions_app_event", "django_q_schedule"])
def test_the_plain_pages_open(root: Client, page: str) -> None:
    assert root.get(reverse(f"admin:{page}_changelist")).status_code == 200
    assert root.get(reverse("admin:index")).status_code == 200


@pytest.mark.slow
def test_erasing_a_person_requires_typing_their_id(root: Client, ada: UserProfile) -> None:
    page = reverse("admin:sessions_app_userprofile_erase", args=[ada.pk])
    assert page in root.get(profile_url(ada)).content.decode()
    ada.sessions.create(session_id="s1")
    shown = re.sub(r"\s*<[^>]*>\s*", " ", root.get(page).content.decode())
    assert re.search(r"sessions\s+1", shown)
    assert "Nothing was erased" in root.post(page, {"user_id": "bo"}).content.decode()
    ada.sessions.update(legal_hold=True)
    assert "legal hold" in root.post(page, {"user_id": "ada"}).content.decode()
    assert UserProfile.objects.exists()
    ada.sessions.update(legal_hold=False)
    Vocabulary.objects.create(user=ada).words.create(user=ada, stem="kiln")
    shown = re.sub(r"\s*<[^>]*>\s*", " ", root.get(page).content.decode())
    assert re.search(r"words\s+1\b", shown) and re.search(r"All\s+3\b", shown)
    answer = root.post(page, {"user_id": "ada"}, follow=True)
    assert "Erased 3 rows and names; nothing is left." in answer.content.decode()
    assert answer.redirect_chain[-1][0] == reverse("admin:sessions_app_event_change", args=[erasure().pk])
    receipt = re.sub(r"\s*<[^>]*>\s*", " ", answer.content.decode())
    assert "Nothing is left" in receipt and re.search(r"sessions\s+1\s+0\b", receipt)
    assert re.search(r"archive files\s+all\s+0\b", receipt) and "more kinds of data were searched" in receipt
    assert not UserProfile.objects.exists()
    assert root.get(page).status_code == 404


def erasure() -> Event:
    return Event.objects.get(type="user_erased")


@pytest.mark.slow
def test_an_operator_without_access_to_events_gets_no_erasure_receipt(ada: UserProfile) -> None:
    eraser = operator("view_userprofile", "delete_userprofile")
    page = reverse("admin:sessions_app_userprofile_erase", args=[ada.pk])
    answer = eraser.post(page, {"user_id": "ada"}, follow=True)
    assert answer.redirect_chain[-1][0] == reverse("admin:sessions_app_userprofile_changelist")
    assert "nothing is left" in answer.content.decode()


@pytest.mark.slow
def test_the_event_of_an_erasure_shows_its_receipt_and_remaining_files(root: Client, ada: UserProfile) -> None:
    erase_user("ada", application=ada.application_id, actor="test")
    page = reverse("admin:sessions_app_event_change", args=[erasure().pk])
    assert "Nothing is left" in root.get(page).content.decode()
    Event.objects.filter(pk=erasure().pk).update(payload=erasure().payload | {"has_files_left": True})
    shown = root.get(page).content.decode()
    assert "Archive files are left" in shown and "A job retries" in shown


def test_row_18_a_viewer_cannot_erase_a_person(ada: UserProfile) -> None:
    viewer = operator("view_")
    page = reverse("admin:sessions_app_userprofile_erase", args=[ada.pk])
    assert viewer.get(page).status_code == viewer.post(page, {"user_id": "ada"}).status_code == 403
    assert UserProfile.objects.exists()


def test_an_operator_can_export_a_person(root: Client, ada: UserProfile) -> None:
    answer = root.get(reverse("admin:sessions_app_userprofile_export", args=[ada.pk]))
    assert answer["Content-Type"] == "application/zip"
    assert answer.getvalue()[:2] == b"PK"


def test_an_event_is_listed_in_one_line_with_links(root: Client, ada: UserProfile) -> None:
    session = ada.sessions.create(session_id="s1")
    payload = {"moment_keys": ["one", "two"], "ids": list(range(9)), "first_sequence": 0}
    job = "job:12345678-0000-0000-0000-000000000000"
    Event.objects.create(type="moments_built", actor=job, user_pk=ada.pk, session_pk=session.pk, payload=payload)
    gone = Event.objects.create(type="session_deleted", actor="key:abc", user_pk=10**9, session_pk=10**9)
    shown = root.get(EVENTS).content.decode()
    assert "moments built" in shown and "ids: 9 · moment keys: one, two · first sequence: 0" in shown
    assert profile_url(ada) in shown and reverse("admin:sessions_app_session_change", args=[session.pk]) in shown
    assert "?q=12345678-" in shown and str(10**9) not in shown
    assert "moments built" not in root.get(EVENTS, {"type": "session_deleted"}).content.decode()
    assert "session deleted" not in root.get(EVENTS, {"q": "ad"}).content.decode()
    assert "key abc" in root.get(reverse("admin:sessions_app_event_change", args=[gone.pk])).content.decode()


def test_an_event_shows_its_payload_in_words_and_keys_by_name(root: Client, ada: UserProfile) -> None:
    key, _ = ApiKey.objects.issue("shop front")
    payload = {"rows": {"turns": 3, "moments": 1}, "is_forced": True, "reason": None, "ids": [1, 2, 3, 4]}
    event = Event.objects.create(type="x", actor=key.actor, payload=payload)
    listed = root.get(EVENTS).content.decode()
    page = root.get(reverse("admin:sessions_app_event_change", args=[event.pk])).content.decode()
    for shown in (listed, page):
        assert "turns 3, moments 1" in shown and "key “shop front”" in shown and "{" + "&#x27;turns" not in shown
    assert "<dt>is forced</dt><dd>yes</dd>" in page and "<dt>ids</dt><dd>1, 2, 3, 4</dd>" in page
    viewer = operator("view_event").get(EVENTS).content.decode()
    assert f"key {key.prefix}" in viewer and "shop front" not in viewer  # without permission to view keys


def test_an_action_needs_a_post_and_an_existing_row(root: Client) -> None:
    key, _ = ApiKey.objects.issue("an app")
    assert root.get(key_url(key, "revoke")).status_code == 405
    assert root.post(f"{KEYS}x/revoke/").status_code == 404
    assert root.post(f"{KEYS}{key.pk + 1}/revoke/").status_code == 404
    key.refresh_from_db()
    assert key.revoked_at is None


@pytest.mark.slow
def test_the_log_hides_reading_events_by_default(root: Client, ada: UserProfile) -> None:
    reading = {"page": "profile", "address": "/somewhere-read/"}
    Event.objects.create(type=USER_READ, actor="operator:eve", user_pk=ada.pk, payload=reading)
    Event.objects.create(type="moments_built", actor="x", user_pk=ada.pk, payload={"said": "something-built"})
    shown = {
        asked: [
            word in root.get(EVENTS, dict([asked])).content.decode() for word in ("somewhere-read", "something-built")
        ]
        for asked in [("readings", ""), ("readings", "with"), ("readings", "alone"), ("type", USER_READ)]
    }
    assert list(shown.values()) == [[False, True], [True, True], [True, False], [True, False]]
