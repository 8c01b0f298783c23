"""The second factor of an operator's login."""

import re
from base64 import b32decode
from binascii import hexlify
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django_otp.oath import totp
from django_otp.plugins.otp_static.models import StaticDevice, StaticToken
from django_otp.plugins.otp_totp.models import TOTPDevice
from pytest_django.fixtures import Settings

from sessions_app.models import Event
from tests.support.operator import operator
from tests.support.pages import change_url, page
from tests.support.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

INDEX, OWN, CODE = "/admin/", "/admin/auth/user/second-factor/", "/admin/auth/user/second-factor/code/"


@pytest.fixture
def eve(transactional_db: None) -> User:
    """An operator with a second factor."""
    login = User.objects.create_user("eve", is_staff=True)
    TOTPDevice.objects.create(user=login, confirmed=True, name="phone")
    device = StaticDevice.objects.create(user=login, name="paper")
    StaticToken.objects.create(device=device, token="abcdefgh")
    return login


def logged_in(login: User) -> Client:
    """Return a client that has entered the password but no code."""
    client = Client()
    client.force_login(login)
    return client


def code_of(key: str, later: int = 0) -> str:
    """Return the code that the app shows for a hexadecimal key now, or some steps later."""
    return f"{totp(bytes.fromhex(key), t0=-30 * later):06}"


def codes_of(login: User) -> str:
    return code_of(TOTPDevice.objects.get(user=login).key)


def give(client: Client, code: str, **data: str) -> Any:
    return client.post(CODE, {"code": code, **data})


class TestTheDoor:
    """The step between the password and the pages."""

    def test_row_36_after_the_password_no_page_opens_before_the_code(self, eve: User) -> None:
        client = logged_in(eve)
        for url in (INDEX, "/admin/sessions_app/session/", OWN, "/admin/password_change/", "/admin/jsi18n/"):
            for answer in (client.get(url), client.post(url)):
                assert (answer.status_code, answer.headers["Location"].split("?")[0]) == (302, CODE)
        assert "one-time-code" in page(client, CODE)
        answer = give(client, codes_of(eve), next="/admin/sessions_app/session/?q=ada")
        assert (answer.status_code, answer.headers["Location"]) == (302, "/admin/sessions_app/session/?q=ada")
        assert client.get(INDEX).status_code == 200

    def test_the_code_page_redirects_to_no_other_site(self, eve: User) -> None:
        answer = give(logged_in(eve), codes_of(eve), next="https://elsewhere.example/")
        assert answer.headers["Location"] == INDEX

    def test_row_36_a_code_works_once_and_wrong_codes_cause_a_wait(self, eve: User) -> None:
        code = codes_of(eve)
        assert give(logged_in(eve), code).status_code == 302
        client = logged_in(eve)
        assert give(client, code).status_code == 200
        TOTPDevice.objects.update(throttling_failure_count=20)  # as after many wrong codes: each doubles the wait
        assert give(client, code_of(TOTPDevice.objects.get().key, later=1)).status_code == 200  # within the wait
        assert client.get(INDEX).status_code == 302
        refused = Event.objects.filter(type="second_factor_refused", actor="operator:eve", payload={})
        assert refused.count() == 2

    @pytest.mark.slow
    def test_row_48_a_wrong_code_in_the_future_blocks_no_login(self, eve: User) -> None:
        future = timezone.now() + timedelta(days=1)
        TOTPDevice.objects.update(throttling_failure_count=1, throttling_failure_timestamp=future)
        assert give(logged_in(eve), codes_of(eve)).status_code == 200  # as if just entered
        wait_until(lambda: give(logged_in(eve), codes_of(eve)).status_code == 302)

    def test_a_recovery_code_works_once(self, eve: User) -> None:
        assert give(logged_in(eve), " ABCD efgh").status_code == 302
        assert give(logged_in(eve), "abcdefgh").status_code == 200
        assert Event.objects.get(type="recovery_code_used").payload == {"left": 0}

    def test_the_session_key_changes_after_the_code(self, eve: User) -> None:
        client = logged_in(eve)
        before = client.cookies["sessionid"].value
        give(client, codes_of(eve))
        assert client.cookies["sessionid"].value != before
        before_it = Client()
        before_it.cookies["sessionid"] = before
        assert before_it.get(INDEX).headers["Location"].startswith("/admin/login/")

    def test_a_code_is_not_valid_for_another_login(self, eve: User) -> None:
        other = User.objects.create_user("other", is_staff=True)
        TOTPDevice.objects.create(user=other, confirmed=True, name="phone")
        assert give(logged_in(other), codes_of(eve)).status_code == 200

    def test_no_code_is_requested_without_a_second_factor(self) -> None:
        client = operator("view_session")
        assert client.get(INDEX).status_code == 200
        assert client.get(CODE).headers["Location"] == INDEX


class TestSettingItUp:
    """The page with the QR code."""

    def offer(self, client: Client) -> tuple[str, str]:
        """Return the signed offer of the form, and the key in it."""
        shown = page(client, OWN)
        assert 'src="data:image/svg+xml' in shown
        [signed] = re.findall(r'name="offer" value="([^"]+)"', shown)
        [letters] = re.findall(r'rem-op-mono">([A-Z2-7 ]+)<', shown)
        return signed, hexlify(b32decode(letters.replace(" ", ""))).decode()

    def test_a_code_of_the_shown_key_turns_the_second_factor_on(self) -> None:
        client = operator("view_session")
        signed, key = self.offer(client)
        assert TOTPDevice.objects.count() == 0  # loading the page stores nothing
        shown = client.post(OWN, {"offer": signed, "code": code_of(key)}).content.decode()
        codes = re.findall(r'rem-op-mono">([a-z2-7]{8})<', shown)
        assert len(set(codes)) == 10
        assert client.get(INDEX).status_code == 200  # this session has entered a code
        login = User.objects.get(username="view_session")
        assert give(logged_in(login), codes[3]).status_code == 302
        assert "You have 9 recovery codes left" in page(client, OWN)
        assert Event.objects.filter(type="second_factor_set_up", actor="operator:view_session").exists()

    def test_a_wrong_code_or_the_offer_of_another_operator_turns_nothing_on(self, settings: Settings) -> None:
        client, other = operator("view_session"), operator("view_moment")
        signed, key = self.offer(client)
        theirs, their_key = self.offer(other)
        wrong = f"{(int(code_of(key)) + 1) % 1_000_000:06}"
        for data in ({"offer": signed, "code": wrong}, {"offer": theirs, "code": code_of(their_key)}, {"offer": key}):
            assert "problem" in client.post(OWN, data).content.decode()
        assert TOTPDevice.objects.count() == 0

    def test_an_existing_second_factor_is_not_replaced(self, eve: User) -> None:
        client = operator("view_session")
        first, second = self.offer(client), self.offer(client)
        client.post(OWN, {"offer": first[0], "code": code_of(first[1])})
        client.post(OWN, {"offer": second[0], "code": code_of(second[1])})
        assert [device.key for device in TOTPDevice.objects.exclude(user=eve)] == [first[1]]

    def test_row_36_a_required_second_factor_must_be_set_up_before_any_page_opens(self, settings: Settings) -> None:
        settings.LOGIN_SECOND_FACTOR = "required"
        client = operator("view_session")
        assert client.get(INDEX).headers["Location"].split("?")[0] == OWN
        signed, key = self.offer(client)
        assert client.post(OWN, {"offer": signed, "code": code_of(key)}).status_code == 200
        assert client.get(INDEX).status_code == 200
        TOTPDevice.objects.update(last_t=-1)
        off = client.post(f"{OWN}off/", {"code": code_of(key)})
        assert b"is required for all staff" in off.content and TOTPDevice.objects.count() == 1


class TestTakingItAway:
    """Removed by the operator with a code, or by an administrator if the device was lost."""

    def test_new_recovery_codes_and_turning_off_require_a_code(self, eve: User) -> None:
        client = logged_in(eve)
        give(client, "abcdefgh")
        for name in ("codes", "off"):
            assert b"This code is wrong" in client.post(f"{OWN}{name}/", {"code": "000000"}).content
            TOTPDevice.objects.update(throttling_failure_count=0, throttling_failure_timestamp=None)
        shown = client.post(f"{OWN}codes/", {"code": codes_of(eve)}).content.decode()
        assert len(re.findall(r'rem-op-mono">([a-z2-7]{8})<', shown)) == 10
        TOTPDevice.objects.update(last_t=-1)
        assert client.post(f"{OWN}off/", {"code": codes_of(eve)}).status_code == 302
        assert (TOTPDevice.objects.count(), StaticDevice.objects.count()) == (0, 0)
        assert logged_in(eve).get(INDEX).status_code == 200

    @pytest.mark.slow
    def test_an_administrator_can_remove_a_second_factor_which_is_logged(self, eve: User) -> None:
        url = reverse("admin:auth_user_remove_second_factor", args=[eve.pk])
        assert operator("view_user").post(url).status_code == 403
        administrator = operator(group="administrators")
        assert "second factor on" in page(administrator, change_url(eve))
        assert administrator.post(url).status_code == 302
        assert "no second factor" in page(administrator, change_url(eve))
        event = Event.objects.get(type="second_factor_removed")
        assert (event.actor, event.payload) == ("operator:administrators", {"login": "eve"})

    def test_a_verified_session_must_verify_a_new_second_factor(self, eve: User) -> None:
        client = logged_in(eve)
        give(client, codes_of(eve))
        TOTPDevice.objects.all().delete()
        TOTPDevice.objects.create(user=eve, confirmed=True, name="another phone")
        assert client.get(INDEX).headers["Location"].startswith(CODE)


@pytest.mark.slow
def test_operators_cannot_see_the_keys_of_others(eve: User) -> None:
    root = operator()
    shown = page(root, change_url(eve)) + page(root, INDEX) + page(root, "/admin/auth/user/")
    assert TOTPDevice.objects.get().key not in shown and "abcdefgh" not in shown
    assert root.get("/admin/otp_totp/totpdevice/").status_code == 404
