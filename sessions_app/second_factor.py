"""The second factor of a login: codes of an app (TOTP), and recovery codes for when that is lost.

django-otp keeps both, slows down whoever guesses, and takes each code once. Whether a login has a second factor is
whether it has a confirmed `TOTPDevice`; a session is verified once a code was given in it.
"""

from base64 import b32encode
from functools import partial

import django_otp
import segno
from django.conf import settings
from django.contrib.auth.models import User
from django.core import signing
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django_otp.plugins.otp_static.models import StaticDevice, StaticToken
from django_otp.plugins.otp_totp.models import TOTPDevice, default_key

from sessions_app.clock import Times, put_back
from sessions_app.limited_operators import unlimited
from sessions_app.models import Event

NAME = "second factor"
RECOVERY_CODES = 10
DIGITS = 6
SET_UP_SECONDS = 3600  # that a key that was shown can be confirmed
# Corrected before a code is checked: a last wrong code dated in the future would block correct codes until then.
TIMES = [Times(kind, "throttling_failure_timestamp") for kind in (TOTPDevice, StaticDevice)]
_SALT = "second-factor"


class Offer:
    """A key that a login may take for its codes: nothing is stored before a code of it was given.

    Args:
        login: who would use it.
        key: hexadecimal; a new one where none is given.
    """

    def __init__(self, login: User, key: str = "") -> None:
        self.login, self.key = login, key or default_key()
        self._device = TOTPDevice(user=login, key=self.key, name=NAME, confirmed=False)

    @property
    def signed(self) -> str:
        """The key for the form to bring back, of this login alone and for a while."""
        return signing.dumps([self.login.pk, self.key], salt=_SALT)

    @classmethod
    def brought_back(cls, login: User, signed: str) -> "Offer | None":
        """Return the offer that a form brought back; None if it isn't this login's, or too old."""
        try:
            whose, key = signing.loads(signed, salt=_SALT, max_age=SET_UP_SECONDS)
        except signing.BadSignature:
            return None
        return cls(login, key) if whose == login.pk else None

    @property
    def picture(self) -> str:
        """The QR code that apps read, as the address of an image."""
        code = segno.make(self._device.config_url, error="m", micro=False)
        return str(code.svg_data_uri(scale=4, border=4, dark="#000", light="#fff"))

    @property
    def text(self) -> str:
        """The key for apps that have no camera, in groups of four letters."""
        letters = b32encode(self._device.bin_key).decode()
        return " ".join(letters[start : start + 4] for start in range(0, len(letters), 4))

    @transaction.atomic
    def take(self, code: str) -> TOTPDevice | None:
        """Have the login use the key from now on, if the code is of it; None if it isn't, or the login has another."""
        User.objects.select_for_update().get(pk=self.login.pk)
        if has_one(self.login):
            return None
        self._device.save()
        if not self._device.verify_token(code):
            self._device.delete()
            return None
        self._device.confirmed = True
        self._device.save(update_fields=["confirmed"])
        return self._device


def login_of(request: HttpRequest) -> User:
    """Return the operator; the admin lets nobody in who isn't one."""
    assert isinstance(request.user, User)
    return request.user


def set_up() -> "QuerySet[TOTPDevice]":
    """Return the second factors that are in use."""
    devices: QuerySet[TOTPDevice] = TOTPDevice.objects.filter(confirmed=True)
    return devices


def has_one(login: User) -> bool:
    """Tell whether a login has a second factor."""
    return set_up().filter(user=login).exists()


def is_verified(request: HttpRequest) -> bool:
    """Tell whether a code was given in this session."""
    return bool(request.user.is_verified())  # type: ignore[union-attr]


def is_required() -> bool:
    """Tell whether nobody works in the admin without one."""
    return bool(settings.LOGIN_SECOND_FACTOR == "required")


def verify(request: HttpRequest, code: str) -> bool:
    """Verify the session by a code of the app, or by a recovery code, which is used up by that."""
    with unlimited():  # devices of all logins
        put_back(TIMES)
    login, code = login_of(request), "".join(code.split()).lower()
    kind = TOTPDevice if len(code) == DIGITS and code.isdecimal() else StaticDevice
    for device in kind.objects.filter(user=login, confirmed=True):
        if django_otp.verify_token(login, device.persistent_id, code):
            enter(request, device)
            if kind is StaticDevice:
                _log("recovery_code_used", login.get_username(), left=recovery_codes_left(login))
            return True
    _log("second_factor_refused", login.get_username())
    return False


def enter(request: HttpRequest, device: TOTPDevice | StaticDevice) -> None:
    """Take the session for verified, under another key: whoever knew the former one isn't in it."""
    request.session.cycle_key()
    django_otp.login(request, device)


def recovery_codes_left(login: User) -> int:
    """Count the recovery codes that were not used yet."""
    return int(StaticToken.objects.filter(device__user=login).count())


@transaction.atomic
def new_recovery_codes(login: User) -> list[str]:
    """Make new recovery codes, in place of the former ones."""
    device, _ = StaticDevice.objects.get_or_create(user=login, name=NAME)
    device.token_set.all().delete()
    codes = [StaticToken.random_token() for _ in range(RECOVERY_CODES)]
    StaticToken.objects.bulk_create(map(partial(_token, device), codes))
    return codes


def _token(device: StaticDevice, code: str) -> StaticToken:
    return StaticToken(device=device, token=code)


@unlimited()  # the events of logins are the site's
@transaction.atomic
def remove(login: User, *, actor: str) -> None:
    """Take the second factor away, and the recovery codes.

    Args:
        login: whose it is.
        actor: who asks: operator:….
    """
    for kind in (TOTPDevice, StaticDevice):
        kind.objects.filter(user=login).delete()
    Event.objects.create(type="second_factor_removed", actor=actor, payload={"login": login.get_username()})


def note_set_up(login: User) -> None:
    """Put on record that a login has a second factor from now on."""
    _log("second_factor_set_up", login.get_username())


@unlimited()
def _log(event: str, username: str, **payload: int) -> None:
    Event.objects.create(type=event, actor=f"operator:{username}", payload=payload)
