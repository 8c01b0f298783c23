"""Earlier versions of a profile."""

import pytest
from django.test import Client
from django.urls import reverse

from sessions_app.models import ProfileVersion, UserProfile
from tests.support.api import Api

pytestmark = pytest.mark.django_db(transaction=True)


def versions(user: UserProfile) -> list[tuple[str, list[str], str]]:
    return list(user.versions.order_by("id").values_list("summary", "interests", "actor"))


def test_a_correction_over_the_api_keeps_what_was_there(service: Api, ada: UserProfile) -> None:
    for summary in ("Likes tea.", "Likes coffee."):
        assert service.patch("users/ada", summary=summary, interests=[summary]).status_code == 200
    [(first, _, actor), (second, interests, _)] = versions(ada)
    assert (first, second, interests) == ("", "Likes tea.", ["Likes tea."])
    assert actor.startswith("key:")


def test_a_correction_in_the_admin_keeps_what_was_there(admin_client: Client, ada: UserProfile) -> None:
    UserProfile.objects.filter(pk=ada.pk).update(summary="Likes tea.")
    page = reverse("admin:sessions_app_userprofile_change", args=[ada.pk])
    fields = {"summary": "x", "interests": "", "preferred_topics": "", "timezone": "UTC", "metadata": "{}"}
    assert admin_client.post(page, fields).status_code == 302
    assert versions(ada) == [("Likes tea.", [], "operator:admin")]


def test_a_refused_correction_keeps_no_version(service: Api, ada: UserProfile) -> None:
    assert service.patch("users/ada", summary="a\0b").status_code == 400
    assert not ProfileVersion.objects.exists()


def test_an_engines_merge_keeps_what_was_there(ada: UserProfile) -> None:
    ada.merge(summary="Has a kiln.", interests=["kilns"], preferred_topics=[], actor="job:1")
    ada.merge(summary="Has two kilns.", interests=["verbs"], preferred_topics=[], actor="job:2")
    assert versions(ada) == [("", [], "job:1"), ("Has a kiln.", ["kilns"], "job:2")]
