"""The three groups of operators: what each may do, and that nobody does more."""

from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.urls import reverse

from memoryproject import logins
from memoryproject.groups import MEMORY, register_groups
from moments_app.models import PromptResource
from sessions_app.models import ApiKey, Event, UserProfile
from tests.support.every_page import every_address
from tests.support.furnished import furnish
from tests.support.operator import operator

pytestmark = pytest.mark.django_db(transaction=True)

# Everybody's own.
NO_PAGES = {"login", "logout", "auth_user_second_factor", "auth_user_give_code"}
NO_PAGES |= {"auth_user_recovery_codes", "auth_user_turn_off"}

# Beside seeing everything: who may do what. Nobody's right stands here twice.
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
    """The table."""

    def test_viewers_see_what_was_said_and_how_it_runs_and_do_nothing(self) -> None:
        everything = {
            f"{model._meta.app_label}.view_{model._meta.model_name}"
            for model in apps.get_models(include_swapped=True)
            if model._meta.app_label in ("sessions_app", "django_q", *MEMORY)
        }
        administrators = {right for right in MAY["administrators"] if right in everything}
        assert rights("viewers") == everything - administrators

    def test_editors_have_prompts_memory_and_jobs_and_nothing_of_administrators(self) -> None:
        own = rights("editors") - rights("viewers")
        assert MAY["editors"] <= own
        assert not MAY["administrators"] & own
        assert own - {right for right in own if right.split(".")[0] in MEMORY} == {
            "sessions_app.change_session",
            "sessions_app.change_userprofile",
            "sessions_app.preview_context",
            "sessions_app.read_userprofile",
        }

    def test_administrators_may_do_everything(self) -> None:
        assert rights("administrators") >= MAY["administrators"] | MAY["editors"] | rights("editors")
        assert len(rights("administrators")) == Permission.objects.count()

    def test_each_migrate_makes_them_so_again_and_leaves_other_groups_alone(self) -> None:
        other = Group.objects.create(name="auditors")
        Group.objects.get(name="viewers").permissions.add(Permission.objects.get(codename="change_job"))
        Group.objects.get(name="editors").delete()
        call_command("migrate", verbosity=0)
        assert rights("viewers") & MAY["editors"] == set()
        assert MAY["editors"] <= rights("editors")
        assert rights("auditors") == set() and other.pk == Group.objects.get(name="auditors").pk

    def test_a_model_that_is_new_is_in_them_at_once(self) -> None:
        Permission.objects.filter(codename__endswith="_moment").delete()
        register_groups()
        assert "moments_app.view_moment" in rights("viewers")
        assert "moments_app.change_moment" in rights("editors")


def tables() -> dict[str, Any]:
    """How many rows each table has, and which were written last; but for events of reading, which a viewer causes."""
    counted = {}
    with connection.cursor() as cursor:
        for model in apps.get_models():
            table = model._meta.db_table
            rows = "WHERE type <> 'user_read'" if model is Event else ""
            cursor.execute(f"SELECT count(*), max(xmin::text::bigint) FROM {table} {rows}")
            counted[table] = cursor.fetchone()
    return counted


@pytest.mark.slow(seconds=15)
def test_row_18_whoever_may_only_look_is_refused_wherever_they_post(monkeypatch: pytest.MonkeyPatch) -> None:
    """But at pages that read whatever the method; `tests/browser` knows that these have no form for them."""
    monkeypatch.setattr(logins, "SEEN_EVERY", 3_600)  # however long it takes, no session is noted as used meanwhile
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
    """They steer memory, and neither let anybody in nor make anybody vanish."""

    @pytest.fixture
    def editor(self, transactional_db: None) -> Client:
        return operator(group="editors")

    def test_an_editor_writes_a_prompt(self, editor: Client) -> None:
        prompt = PromptResource.objects.earliest("pk")
        url = reverse("admin:moments_app_promptresource_add_version", args=[prompt.pk])
        assert editor.post(url, {"content": "A new text.", "after": 1}).status_code == 302
        assert prompt.versions.count() == 2

    def test_row_18_an_editor_makes_no_key_no_login_and_erases_nobody(self, editor: Client, ada: UserProfile) -> None:
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
