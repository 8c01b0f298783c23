"""What each role sees: rows of a table only with permission to view that table, on any page."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import Model
from django.test import Client
from django.urls import reverse

from memoryproject.settings import CONF
from moments_app.models import (
    Circuit,
    Contradiction,
    Correction,
    EngineCall,
    Entity,
    KnownPerson,
    MemoryAtom,
    MemoryStream,
    Moment,
    Release,
    Retraction,
    StatementChange,
    StoredItem,
    Summary,
)
from sessions_app.models import ApiKey, Message, Session, UserProfile
from tests.support.every_page import Address, every_address
from tests.support.furnished import furnish
from tests.support.kept_rows import KeptRows
from tests.support.operator import operator

pytestmark = pytest.mark.django_db(transaction=True)

# A unique text for each table, and the permission to view it.
TEXTS: dict[tuple[type[Model], str], str] = {
    (Message, "content"): "sessions_app.view_session",
    (UserProfile, "summary"): "sessions_app.view_userprofile",
    (ApiKey, "name"): "sessions_app.view_apikey",
    (User, "email"): "auth.view_user",
    (Moment, "summary"): "moments_app.view_moment",
    (Summary, "text"): "moments_app.view_summary",
    (MemoryAtom, "content"): "moments_app.view_memoryatom",
    (MemoryStream, "pinned_content"): "moments_app.view_memorystream",
    (KnownPerson, "name"): "moments_app.view_knownperson",
    (StoredItem, "key"): "moments_app.view_storeditem",
    (EngineCall, "error"): "moments_app.view_enginecall",
    (Retraction, "reason"): "moments_app.view_retraction",
    (Release, "note"): "moments_app.view_release",
    (Correction, "before"): "moments_app.view_correction",
    (StatementChange, "actor"): "moments_app.view_statementchange",
    (Contradiction, "reason"): "moments_app.view_contradiction",
    (Circuit, "error"): "moments_app.view_circuit",
}
DJANGOS_OWN = ("_changelist", "_history", "_add", "_delete")
NO_ROLE = "only the page's own table"


def mark_of(model: type[Model], name: str) -> str:
    return f"marked-{model._meta.model_name}-{name}"


def mark() -> None:
    """Set the same text in all rows of each table."""
    for model, name in TEXTS:
        model._base_manager.update(**{name: mark_of(model, name)})
    Entity.objects.update(content="Order felt")  # shown with the permission to view entities or to view statements


def pages_that_show_more() -> list[Address]:
    """Return the pages except Django's own, which show only their own table."""
    return [address for address in every_address() if not address.name.endswith(DJANGOS_OWN)]


def own_right(address: Address) -> str:
    """Return the permission to view the table of the page."""
    _, _, app, model, *_ = address.url.split("/")
    return f"{app}.view_{model}"


def rights_of(role: str, address: Address) -> set[str]:
    if role == NO_ROLE:
        return {own_right(address)}
    return set(User.objects.get(username=role).get_all_permissions())


def clients() -> Callable[[str, Address], Client]:
    """Return a function that creates each login once."""
    made: dict[str, Client] = {}

    def client(role: str, address: Address) -> Client:
        name = own_right(address).split(".")[1] if role == NO_ROLE else role
        if name not in made:
            made[name] = operator(name) if role == NO_ROLE else operator(group=role)
        return made[name]

    return client


def test_viewers_and_editors_see_the_same_tables_and_administrators_all() -> None:
    """So a leak to viewers is also a leak to editors or to a login without a role."""
    seen = {}
    for role in ("viewers", "editors", "administrators"):
        operator(group=role)
        seen[role] = User.objects.get(username=role).get_all_permissions() & {*TEXTS.values()}
    assert seen["viewers"] == seen["editors"] < seen["administrators"] == {*TEXTS.values()}


@pytest.mark.slow(seconds=10)
@pytest.mark.parametrize("role", ["editors", NO_ROLE])
def test_row_35_a_page_shows_rows_of_a_table_only_with_permission_to_view_it(role: str, kept_rows: KeptRows) -> None:
    kept_rows.have("furnished", furnish)
    mark()
    client, shown, leaks = clients(), set(), []
    for address in pages_that_show_more():
        if address.url.count("/") < 5:  # the dashboard and the pages of the own account
            continue
        answer: Any = client(role, address).get(address.url)
        text = b"".join(answer).decode("utf-8", "replace")
        found = {(right, name) for (model, field), right in TEXTS.items() if (name := mark_of(model, field)) in text}
        shown |= found
        leaks += [(address.name, name) for right, name in found if right not in rights_of(role, address)]
    assert leaks == []
    assert len(shown) > 8  # the marks are found on these pages


WEBHOOKS = {
    f"moments_app_{table}_{page}"
    for table in ("webhookendpoint", "webhookdelivery")
    for page in ("changelist", "change")
}
CLOSED: dict[str, set[str]] = {
    "viewers": {
        "sessions_app_userprofile_export",
        "sessions_app_session_context",
        *(["moments_app_memoryatom_recall"] if "lab" in CONF.extras else []),
        "sessions_app_apikey_changelist",
        "sessions_app_apikey_change",
        *WEBHOOKS,
        "auth_user_changelist",
        "auth_user_change",
        "auth_group_changelist",
        "auth_group_change",
    },
    "editors": {
        "sessions_app_userprofile_export",
        "sessions_app_apikey_changelist",
        "sessions_app_apikey_change",
        *WEBHOOKS,
        "auth_user_changelist",
        "auth_user_change",
        "auth_group_changelist",
        "auth_group_change",
    },
    "administrators": set(),
}


@pytest.mark.slow
def test_row_35_exports_contexts_keys_and_logins_need_separate_permissions(kept_rows: KeptRows) -> None:
    kept_rows.have("furnished", furnish)
    about = [address for address in every_address() if address.name in CLOSED["viewers"]]
    assert {address.name for address in about} == CLOSED["viewers"]
    for role, closed in CLOSED.items():
        client = operator(group=role)
        statuses = {address.name: client.get(address.url).status_code for address in about}
        assert {name for name, status in statuses.items() if status == 403} == closed
        assert set(statuses.values()) <= {200, 302, 403}  # the archive for the export has no file in this test


def test_row_35_permission_to_view_sessions_does_not_include_contexts(ada: UserProfile) -> None:
    session = Session.objects.create(user=ada, session_id="one")
    url = reverse("admin:sessions_app_session_context", args=[session.pk])
    assert operator("view_session").get(url).status_code == 403
    assert operator("view_", "read_userprofile").get(url).status_code == 403
    assert operator("view_", "preview_context").get(url).status_code == 200
