"""The rights of the three groups of operators."""

from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.urls import reverse

from memoryproject import logins
from memoryproject.logins import memory_apps, register_groups
from moments_app.models import PromptResource
from sessions_app.models import ApiKey, Event, UserProfile
from tests.support.every_page import every_address
from tests.support.furnished import furnish
from tests.support.operator import operator

pytestmark = pytest.mark.django_db(transaction=True)

# URLs of the operator's own account.
NO_PAGES = {"login", "logout", "auth_user_second_factor", "auth_user_give_code"}
NO_PAGES |= {"auth_user_recovery_codes", "auth_user_turn_off"}

# The rights in addition to viewing everything. No right appears twice.
MAY = {
    "editors": {
        "moments_app.add_promptresource",
        "moments_app.change_promptresource",
        "moments_app.change_job",
        "moments_app.change_summary",
        "moments_app.change_moment",
        "moments_app.delete_moment",
        "moments_app.add_memorystream",
        "moments_app.change_memorystream",
        "moments_app.add_memoryatom",
        "moments_app.change_memoryatom",
        "moments_app.change_entity",
        "moments_app.delete_entity",
        "moments_app.add_retraction",
        "moments_app.change_retraction",
        "sessions_app.change_session",
        "sessions_app.change_userprofile",
        "sessions_app.preview_context",
        "sessions_app.read_userprofile",
    },
    "administrators": {
        "sessions_app.export_userprofile",
        "sessions_app.view_apikey",
        "moments_app.view_webhookendpoint",
        "moments_app.view_webhookdelivery",
        "moments_app.add_webhookendpoint",
        "moments_app.change_webhookendpoint",
        "moments_app.delete_webhookendpoint",
        "auth.view_user",
        "auth.view_group",
        "sessions_app.add_apikey",
        "sessions_app.add_application",
        "sessions_app.change_application",
        "sessions_app.change_apikey",
        "sessions_app.delete_userprofile",
        "sessions_app.delete_session",
        "django_q.change_schedule",
        "auth.add_user",
        "auth.change_user",
        "auth.delete_user",
        "auth.add_group",
        "auth.change_group",
    },
}


def rights(group: str) -> set[str]:
    found = Permission.objects.filter(group__name=group).select_related("content_type")
    return {f"{permission.content_type.app_label}.{permission.codename}" for permission in found}


class TestRights:
    def test_viewers_may_view_memory_and_operations_and_change_nothing(self) -> None:
        everything = {
            f"{model._meta.app_label}.view_{model._meta.model_name}"
            for model in apps.get_models(include_swapped=True)
            if model._meta.app_label in ("sessions_app", "django_q", *memory_apps())
        }
        administrators = {right for right in MAY["administrators"] if right in everything}
        assert rights("viewers") == everything - administrators

    def test_editors_may_change_prompts_memory_and_jobs_and_have_no_rights_of_administrators(self) -> None:
        own = rights("editors") - rights("viewers")
        assert MAY["editors"] <= own
        assert not MAY["administrators"] & own
        assert own - {right for right in own if right.split(".")[0] in memory_apps()} == {
            "sessions_app.change_session",
            "sessions_app.change_userprofile",
            "sessions_app.preview_context",
            "sessions_app.read_userprofile",
        }

    def test_administrators_may_do_everything(self) -> None:
        assert rights("administrators") >= MAY["administrators"] | MAY["editors"] | rights("editors")
        assert len(rights("administrators")) == Permission.objects.count()

    @pytest.mark.slow
    def test_each_migrate_restores_the_groups_and_does_not_change_others(self) -> None:
        other = Group.objects.create(name="auditors")
        Group.objects.get(name="viewers").permissions.add(Permission.objects.get(codename="change_job"))
        Group.objects.get(name="editors").delete()
        call_command("migrate", verbosity=0)
        assert rights("viewers") & MAY["editors"] == set()
        assert MAY["editors"] <= rights("editors")
        assert rights("auditors") == set() and other.pk == Group.objects.get(name="auditors").pk

    def test_the_rights_on_a_new_model_are_added_to_the_groups(self) -> None:
        Permission.objects.filter(codename__endswith="_moment").delete()
        register_groups()
        assert "moments_app.view_moment" in rights("viewers")
        assert "moments_app.change_moment" in rights("editors")


def tables() -> dict[str, Any]:
    """Return how many rows each table has and its last transaction. Ignore events of reading, which a viewer causes."""
    counted = {}
    with connection.cursor() as cursor:
        for model in apps.get_models():
            table = model._meta.db_table
            rows = "WHERE type <> 'user_read'" if model is Event else ""
            cursor.execute(f"SELECT count(*), max(xmin::text::bigint) FROM {table} {rows}")
            counted[table] = cursor.fetchone()
    return counted


@pytest.mark.slow(seconds=15)
def test_row_18_a_viewer_cannot_post_to_any_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip pages that answer a post like a get. `tests/browser` checks that these show a viewer no form."""
    monkeypatch.setattr(logins, "UPDATE_SECONDS", 3_600)  # no slow run marks a session as used
    furnish()
    viewer = operator(group="viewers")
    before = tables()
    taken: dict[str, int] = {}
    for address in every_address():
        if address.name not in NO_PAGES:
            status = viewer.post(address.url, {"post": "yes"}).status_code
            is_read = status == 200 == viewer.get(address.url).status_code
            if status not in (403, 405) and not is_read:
                taken[address.name] = status
    assert taken == {}
    assert tables() == before


class TestEditors:
    """Editors manage memory. They can't create accounts or erase people."""

    @pytest.fixture
    def editor(self, transactional_db: None) -> Client:
        return operator(group="editors")

    def test_an_editor_can_edit_a_prompt(self, editor: Client) -> None:
        prompt = PromptResource.objects.earliest("pk")
        url = reverse("admin:moments_app_promptresource_add_version", args=[prompt.pk])
        assert editor.post(url, {"content": "A new text.", "after": 1}).status_code == 302
        assert prompt.versions.count() == 2

    def test_row_18_an_editor_cannot_create_keys_or_accounts_or_erase_people(
        self, editor: Client, ada: UserProfile
    ) -> None:
        key, _ = ApiKey.objects.issue("stays")
        erase = reverse("admin:sessions_app_userprofile_erase", args=[ada.pk])
        posts: list[tuple[str, dict[str, Any]]] = [
            (reverse("admin:sessions_app_apikey_add"), {"name": "mine", "scope": "admin"}),
            (reverse("admin:sessions_app_apikey_changelist"), {"action": "revoke", "_selected_action": [key.pk]}),
            (erase, {"user_id": "ada"}),
            (reverse("admin:auth_user_add"), {"username": "mine"}),
            (reverse("admin:auth_group_add"), {"name": "mine"}),
        ]
        assert [editor.post(url, data).status_code for url, data in posts] == [403] * len(posts)
        assert editor.get(erase).status_code == 403
        assert list(ApiKey.objects.values_list("name", "revoked_at")) == [("stays", None)]
        assert UserProfile.objects.filter(pk=ada.pk).exists()
