"""Staff accounts: invitations, roles, deactivation."""

import re
from typing import Any

import pytest
from django.conf import LazySettings
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from memoryproject.logins import groups
from sessions_app.models import Application, Event, Session
from sessions_app.security.staff import ROLES, invitation_token, invite, role_of, state_of
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, list_url, page, queries_of

pytestmark = pytest.mark.django_db(transaction=True)

PASSWORD = "a long and secret word"
PASSWORDS = {"new_password1": PASSWORD, "new_password2": PASSWORD}


def post(client: Client, name: str, *arguments: Any, **data: Any) -> Any:
    return client.post(reverse(f"admin:auth_user_{name}", args=arguments), data)


def link_in(answer: Any) -> str:
    found = re.search(r'value="http://testserver(/[^"]+)"', answer.content.decode())
    assert found
    return found[1]


def ida(role: str = "viewer") -> User:
    return invite("ida", role=role, actor="test")


class TestInviting:
    """A link to set a password and log in."""

    def test_an_invited_person_sets_a_password_and_gets_their_role(self) -> None:
        answer = post(operator(group="administrators"), "invite", username="ida", role="viewer")
        assert answer.status_code == 200
        guest, link = Client(), link_in(answer)
        assert "Set password and log in" in page(guest, link)
        assert guest.post(link, PASSWORDS).status_code == 302
        assert guest.get(list_url(Session)).status_code == 200
        assert guest.get(list_url(User)).status_code == 403
        login = User.objects.get(username="ida")
        assert (role_of(login), state_of(login), login.is_staff, login.is_superuser) == (
            "viewer",
            "active",
            True,
            False,
        )
        assert set(Event.objects.filter(type__startswith="login_").values_list("type", "actor")) == {
            ("login_invited", "operator:administrators"),
            ("login_joined", "operator:ida"),
        }

    def test_row_36_a_link_works_once_until_it_expires_or_is_replaced(self, settings: LazySettings) -> None:
        root, login = operator(), ida()
        first = reverse("admin:auth_user_invitation", args=[invitation_token(login)])
        second = link_in(post(root, "invite_again", login.pk))
        assert Client().post(first, PASSWORDS).status_code == 410
        assert Client().post(second, PASSWORDS).status_code == 302
        assert Client().get(second).status_code == 410
        third = link_in(post(root, "invite_again", login.pk))
        days = settings.PASSWORD_RESET_TIMEOUT
        settings.PASSWORD_RESET_TIMEOUT = -1
        assert Client().get(third).status_code == 410
        settings.PASSWORD_RESET_TIMEOUT = days
        assert Client().get(third).status_code == 200
        post(root, "deactivate", login.pk)
        assert Client().get(third).status_code == 410
        for void in (
            third[:-2] + "/",
            third.replace(f"/{login.pk}-", "/x-"),
            third.replace(f"/{login.pk}-", "/" + "9" * 30 + "-"),
        ):
            assert Client().get(void).status_code == 410

    def test_a_weak_password_is_rejected_and_the_link_stays_valid(self) -> None:
        link = reverse("admin:auth_user_invitation", args=[invitation_token(ida())])
        answer = Client().post(link, {"new_password1": "password", "new_password2": "password"})
        assert answer.status_code == 400 and b"too common" in answer.content
        assert Client().post(link, PASSWORDS).status_code == 302

    def test_a_required_second_factor_is_set_up_next(self, settings: LazySettings) -> None:
        settings.LOGIN_SECOND_FACTOR = "required"
        guest = Client()
        answer = guest.post(
            reverse("admin:auth_user_invitation", args=[invitation_token(ida())]), PASSWORDS, follow=True
        )
        assert "QR code" in answer.content.decode()

    def test_a_name_that_exists_in_any_case_is_rejected(self) -> None:
        ida()
        answer = post(operator(), "invite", username="Ida", role="viewer")
        assert answer.status_code == 409 and b"the login Ida already exists" in answer.content
        assert post(operator(group="administrators"), "invite", username="bo", role="queen").status_code == 400

    def test_an_invitation_can_be_limited_to_one_application(self) -> None:
        other = Application.objects.create(name="other")
        post(operator(), "invite", username="ida", role="editor", applications=[other.pk])
        assert [limit.application for limit in User.objects.get(username="ida").limits.all()] == [other]


class TestRoles:
    """The three named roles."""

    def test_roles_are_the_groups_that_migrate_creates(self) -> None:
        assert [role.group for role in ROLES] == list(groups())

    def test_the_staff_list_takes_a_constant_number_of_queries(self) -> None:
        root = operator()
        few = queries_of(root, list_url(User))
        for number in range(5):
            invite(f"guest-{number}", role="viewer", actor="test", applications=[Application.objects.get()])
        assert queries_of(root, list_url(User)) <= few + 1 <= MAX_QUERIES  # one reads application names

    def test_a_role_replaces_the_previous_one_and_other_groups_stay(self) -> None:
        root, login = operator(), ida()
        login.groups.add(Group.objects.create(name="auditors"))
        post(root, "role", login.pk, role="editor")
        assert set(login.groups.values_list("name", flat=True)) == {"auditors", "editors"}
        assert "editor" in page(root, list_url(User))
        post(root, "role", login.pk, role="queen")
        assert role_of(User.objects.get(pk=login.pk)) == "editor"

    def test_row_18_an_administrator_cannot_change_themselves_or_a_superuser(self) -> None:
        administrator, root = operator(group="administrators"), User.objects.create_superuser("root")
        own = User.objects.get(username="administrators")
        for login in (own, root):
            post(administrator, "role", login.pk, role="viewer")
            post(administrator, "deactivate", login.pk)
            assert post(administrator, "invite_again", login.pk).status_code == 409
        own.refresh_from_db()
        assert role_of(own) == "administrator" and own.is_active
        root.refresh_from_db()
        assert role_of(root) == "superuser" and root.is_active

    def test_row_18_an_editor_cannot_see_or_change_staff(self) -> None:
        editor, login = operator(group="editors"), ida()
        names = ("role", "deactivate", "reactivate", "invite_again")
        assert {post(editor, name, login.pk, role="administrator").status_code for name in names} == {403}
        assert post(editor, "invite", username="bo", role="viewer").status_code == 403
        assert editor.get(list_url(User)).status_code == 403

    def test_a_deactivated_operator_is_logged_out_and_can_be_reactivated(self) -> None:
        root, guest = operator(), operator(group="viewers")
        login = User.objects.get(username="viewers")
        post(root, "deactivate", login.pk)
        assert guest.get(list_url(Session)).status_code == 302
        assert "deactivated" in page(root, list_url(User))
        post(root, "reactivate", login.pk)
        guest.force_login(login)
        assert guest.get(list_url(Session)).status_code == 200
