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
        "interests": "kilns,verbs",
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
