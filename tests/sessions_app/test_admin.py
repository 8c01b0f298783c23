"""The operator's pages of people, keys and logins."""

import re

import pytest
from django.test import Client
from django.urls import reverse

from sessions_app.models import ApiKey, UserProfile
from tests.support.api import Api
from tests.support.operator import operator

pytestmark = pytest.mark.django_db(transaction=True)

KEYS = reverse("admin:sessions_app_apikey_changelist")
NEW_KEY = reverse("admin:sessions_app_apikey_add")


@pytest.fixture
def root(transactional_db: None) -> Client:
    return operator()


def profile_url(user: UserProfile) -> str:
    return reverse("admin:sessions_app_userprofile_change", args=[user.pk])


def test_row_19_a_key_is_shown_once_and_works(root: Client, ada: UserProfile) -> None:
    data = {"name": "a partner", "user": ada.pk, "scope": "read", "expires_at_0": "", "expires_at_1": ""}
    shown = root.post(NEW_KEY, data, follow=True).content.decode()
    found = re.search(r"shown this once: (\S+?)[<\s]", shown)
    assert found
    assert Api(found[1]).get("users/ada").status_code == 200
    assert Api(found[1]).get("users/bo").status_code == 404
    later = root.get(KEYS).content.decode()
    assert "a partner" in later and found[1] not in later


def test_a_revoked_key_ends_at_once(root: Client, ada: UserProfile) -> None:
    key, text = ApiKey.objects.issue("gone")
    assert Api(text).get("users/ada").status_code == 200
    assert (
        "1 keys revoked"
        in root.post(KEYS, {"action": "revoke", "_selected_action": [key.pk]}, follow=True).content.decode()
    )
    assert Api(text).get("users/ada").status_code == 401


def test_a_key_is_never_edited_or_deleted(root: Client) -> None:
    key, _ = ApiKey.objects.issue("settled", scope="read")
    root.post(reverse("admin:sessions_app_apikey_change", args=[key.pk]), {"name": "x", "scope": "admin"})
    root.post(reverse("admin:sessions_app_apikey_delete", args=[key.pk]), {"post": "yes"})
    assert list(ApiKey.objects.values_list("name", "scope")) == [("settled", "read")]


def test_row_18_a_viewer_makes_and_revokes_no_keys(transactional_db: None) -> None:
    viewer = operator("view_")
    key, _ = ApiKey.objects.issue("stays")
    assert viewer.get(KEYS).status_code == 200
    assert viewer.post(NEW_KEY, {"name": "mine", "scope": "admin"}).status_code == 403
    viewer.post(KEYS, {"action": "revoke", "_selected_action": [key.pk]})
    assert list(ApiKey.objects.values_list("name", "revoked_at")) == [("stays", None)]


def test_a_profile_is_corrected(root: Client, ada: UserProfile) -> None:
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


def test_a_wrong_time_zone_is_refused_and_nothing_stored(root: Client, ada: UserProfile) -> None:
    data = {"summary": "x", "interests": "", "preferred_topics": "", "timezone": "Mars/Base", "metadata": "{}"}
    assert "Mars/Base" in root.post(profile_url(ada), data).content.decode()
    ada.refresh_from_db()
    assert ada.summary == ""


@pytest.mark.parametrize(
    "page", ["auth_user", "auth_group", "sessions_app_event", "django_q_ormq", "django_q_schedule"]
)
def test_the_plain_pages_open(root: Client, page: str) -> None:
    assert root.get(reverse(f"admin:{page}_changelist")).status_code == 200
    assert root.get(reverse("admin:index")).status_code == 200


def test_a_person_is_erased_once_their_id_is_typed(root: Client, ada: UserProfile) -> None:
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
    answer = root.post(page, {"user_id": "ada"}, follow=True)
    assert "nothing is left" in answer.content.decode()
    assert not UserProfile.objects.exists()
    assert root.get(page).status_code == 404


def test_row_18_a_viewer_erases_nobody(ada: UserProfile) -> None:
    viewer = operator("view_")
    page = reverse("admin:sessions_app_userprofile_erase", args=[ada.pk])
    assert viewer.get(page).status_code == viewer.post(page, {"user_id": "ada"}).status_code == 403
    assert UserProfile.objects.exists()


def test_an_operator_exports_a_person(root: Client, ada: UserProfile) -> None:
    answer = root.get(reverse("admin:sessions_app_userprofile_export", args=[ada.pk]))
    assert answer["Content-Type"] == "application/zip"
    assert answer.getvalue()[:2] == b"PK"
