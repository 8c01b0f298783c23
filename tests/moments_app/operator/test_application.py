"""Applications in the admin: a column and a filter if there are several, and neither if there is one."""

import re

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import reverse

from memoryproject.settings import CONF
from moments_app.models import MemoryStream, PromptResource
from sessions_app.admin.base import PageAdmin
from sessions_app.models import ApiKey, Application, Event, UserProfile
from sessions_app.models.application import DEFAULT
from tests.support.extras import needs
from tests.support.furnished import furnish
from tests.support.pages import page
from tests.support.streams import note, shard
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)

admin.autodiscover()

LISTS = [model for model, page in admin.site._registry.items() if getattr(page, "applications", ())]


@pytest.fixture
def shop() -> int:
    """A second application, with a person of the same name, a session, a shard and a key."""
    application = Application.objects.create(name="shop").pk
    ada = UserProfile.objects.ensure("ada", application)
    talk(ada, 3, session_id="in-the-shop")
    note(shard("shelves", application_id=application), "Shelves are full.")
    ApiKey.objects.issue("of the shop", application=application)
    Event.objects.create(type="shop_opened", actor="test", application_id=application)
    return application


def url_of(model: type, what: str = "changelist") -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{what}")  # type: ignore[attr-defined]


def test_every_list_declares_its_path_to_an_application_or_belongs_to_the_site() -> None:
    of_the_site = {
        model._meta.model_name
        for model, shown in admin.site._registry.items()
        if isinstance(shown, PageAdmin) and not shown.applications
    }
    assistants = {"assistant"} if "oauth" in CONF.extras else set()
    queue, logins = {"schedule"}, {"user", "group"}
    assert of_the_site == {"application", "circuit", "embeddingmodel", *assistants} | queue | logins


@pytest.mark.slow
def test_an_installation_with_one_application_does_not_show_it(root: Client) -> None:
    furnish()
    for model in (ApiKey, Event, MemoryStream, PromptResource):
        shown = page(root, url_of(model))
        assert "column-application_column" not in shown and "of_application" not in shown, model
    assert "/applications/" not in shown and url_of(Application) not in page(root, url_of(ApiKey))
    for model in (ApiKey, MemoryStream, PromptResource):
        assert 'name="application"' not in page(root, url_of(model, "add")), model
    if "lab" in CONF.extras:
        assert 'name="application"' not in page(root, reverse("admin:moments_app_memoryatom_recall"))


@pytest.mark.slow
def test_with_several_applications_lists_have_a_column_and_a_filter(root: Client, shop: int) -> None:
    furnish()
    for model in LISTS:
        everybodys = page(root, url_of(model))
        assert "column-application_column" in everybodys and "of_application" in everybodys, model
        theirs = page(root, f"{url_of(model)}?of_application={shop}")
        assert re.findall(r"field-application_column[^>]*>\s*(default|all applications)", theirs) == [], model
        if mark := MARKS.get(model._meta.label_lower):
            assert mark in theirs, model
            assert mark not in page(root, f"{url_of(model)}?of_application={DEFAULT}"), model
    assert url_of(Application) in page(root, url_of(ApiKey))


MARKS = {
    "sessions_app.session": "in-the-shop",
    "sessions_app.apikey": "of the shop",
    "sessions_app.event": "shop opened",
    "moments_app.memorystream": "shelves",
    "moments_app.memoryatom": "Shelves are full.",
}


def test_keys_shards_and_prompts_are_added_for_an_application(root: Client, shop: int) -> None:
    made = root.post(url_of(ApiKey, "add"), {"name": "new", "scope": "write", "application": shop})
    assert b"mem_" in made.content
    assert ApiKey.objects.get(name="new").application_id == shop
    fields = {"name": "policy", "uri": "rem://prompts/memory-policy", "purpose": "memory-policy", "application": shop}
    root.post(url_of(PromptResource, "add"), fields)
    assert PromptResource.objects.get(uri=fields["uri"]).application_id == shop
    again = root.post(url_of(PromptResource, "add"), fields)
    assert again.status_code == 200 and b"There is already a prompt resource with this address." in again.content


def test_a_form_without_an_application_field_reports_a_duplicate_address(root: Client) -> None:
    taken = PromptResource.objects.earliest("pk")
    fields = {"name": "again", "uri": taken.uri, "purpose": taken.purpose}
    answer = root.post(url_of(PromptResource, "add"), fields)
    assert answer.status_code == 200 and b"There is already a prompt resource with this address." in answer.content


def test_applications_are_added_and_renamed_but_not_deleted(root: Client, shop: int) -> None:
    assert root.post(url_of(Application, "add"), {"name": "cafe"}).status_code == 302
    cafe = Application.objects.named("cafe")
    change = reverse("admin:sessions_app_application_change", args=[cafe.pk])
    assert root.post(change, {"name": "bar"}).status_code == 302
    assert Application.objects.get(pk=cafe.pk).name == "bar"
    assert root.post(change, {"name": "Not a slug"}).status_code == 200
    assert root.post(reverse("admin:sessions_app_application_delete", args=[cafe.pk])).status_code == 403


@needs("lab")
def test_the_console_searches_the_person_of_the_chosen_application(root: Client, shop: int) -> None:
    url = f"{reverse('admin:moments_app_memoryatom_recall')}?user_id=ada&query=turn&application="
    assert "There is no user" in page(root, f"{url}{DEFAULT}")
    assert "There is no user" not in page(root, f"{url}{shop}")
