"""The second factor of a login: TOTP codes from an app, and recovery codes in case the app is lost.

django-otp stores both, throttles guesses, and accepts each code once. A login has a second factor if it has a confirmed
`TOTPDevice`. A session is verified once a code was entered in it.
"""

from base64 import b32encode

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

from sessions_app.clock import TimeColumn, correct_times
from sessions_app.limited_operators import unlimited
from sessions_app.models import Event

NAME = "second factor"
RECOVERY_CODES = 10
DIGITS = 6
SET_UP_SECONDS = 3600  # time in which a new key must be confirmed
# Corrected before a code is checked. Otherwise, a failed attempt dated in the future would block correct codes.
TIMES = [TimeColumn(kind, "throttling_failure_timestamp") for kind in (TOTPDevice, StaticDevice)]
_SALT = "second-factor"


class UnconfirmedKey:
    """A key that a login can confirm as its second factor. It is not stored until a correct code is entered."""

    def __init__(self, login: User, key: str = "") -> None:  # the key in hexadecimal; by default a new one
        self.login, self.key = login, key or default_key()
        self._device = TOTPDevice(user=login, key=self.key, name=NAME, confirmed=False)

    @property
    def signed(self) -> str:
        """The signed key for the form. Valid for a limited time, and only for this login."""
        return signing.dumps([self.login.pk, self.key], salt=_SALT)

    @classmethod
    def from_form(cls, login: User, signed: str) -> "UnconfirmedKey | None":
        """Return the key from a submitted form. None if it belongs to another login, or is too old."""
        try:
            whose, key = signing.loads(signed, salt=_SALT, max_age=SET_UP_SECONDS)
        except signing.BadSignature:
            return None
        return cls(login, key) if whose == login.pk else None

    @property
    def picture(self) -> str:
        code = segno.make(self._device.config_url, error="m", micro=False)
        return str(code.svg_data_uri(scale=4, border=4, dark="#000", light="#fff"))

    @property
    def text(self) -> str:
        """The key in groups of four letters, for apps without a camera."""
        letters = b32encode(self._device.bin_key).decode()
        return " ".join(letters[start : start + 4] for start in range(0, len(letters), 4))

    @transaction.atomic
    def confirm(self, code: str) -> TOTPDevice | None:
        """Set up and return the second factor, or return None if the code is wrong or the login already has one."""
        User.objects.select_for_update().get(pk=self.login.pk)
        if is_set_up(self.login):
            return None
        self._device.save()
        if not self._device.verify_token(code):
            self._device.delete()
            return None
        self._device.confirmed = True
        self._device.save(update_fields=["confirmed"])
        return self._device


def login_of(request: HttpRequest) -> User:
    """Return the operator's login. All users of the admin are operators."""
    assert isinstance(request.user, User)
    return request.user


def confirmed_devices() -> "QuerySet[TOTPDevice]":
    devices: QuerySet[TOTPDevice] = TOTPDevice.objects.filter(confirmed=True)
    return devices


def is_set_up(login: User) -> bool:
    return confirmed_devices().filter(user=login).exists()


def is_verified(request: HttpRequest) -> bool:
    return bool(request.user.is_verified())  # type: ignore[union-attr]


def is_required() -> bool:
    return bool(settings.LOGIN_SECOND_FACTOR == "required")


def verify(request: HttpRequest, code: str) -> bool:
    """Verify the session with a code from the app, or with a recovery code, which works once."""
    with unlimited():  # `correct_times` reads the devices of all logins
        correct_times(TIMES)
    login, code = login_of(request), "".join(code.split()).lower()
    kind = TOTPDevice if len(code) == DIGITS and code.isdecimal() else StaticDevice
    for device in kind.objects.filter(user=login, confirmed=True):
        if django_otp.verify_token(login, device.persistent_id, code):
            mark_verified(request, device)
            if kind is StaticDevice:
                _log("recovery_code_used", login.get_username(), left=recovery_codes_left(login))
            return True
    _log("second_factor_refused", login.get_username())
    return False


def mark_verified(request: HttpRequest, device: TOTPDevice | StaticDevice) -> None:
    """Mark the session as verified, and change the session key, so a stolen key becomes useless."""
    request.session.cycle_key()
    django_otp.login(request, device)


def recovery_codes_left(login: User) -> int:
    return int(StaticToken.objects.filter(device__user=login).count())


@transaction.atomic
def new_recovery_codes(login: User) -> list[str]:
    """Replace the recovery codes, and return the new ones."""
    device, _ = StaticDevice.objects.get_or_create(user=login, name=NAME)
    device.token_set.all().delete()
    codes = [StaticToken.random_token() for _ in range(RECOVERY_CODES)]
    StaticToken.objects.bulk_create(StaticToken(device=device, token=code) for code in codes)
    return codes


@unlimited()  # events of logins are site-wide
@transaction.atomic
def remove(login: User, *, actor: str) -> None:
    """Remove the second factor and the recovery codes. The actor is `operator:…`."""
    for kind in (TOTPDevice, StaticDevice):
        kind.objects.filter(user=login).delete()
    Event.objects.create(type="second_factor_removed", actor=actor, payload={"login": login.get_username()})


def log_setup(login: User) -> None:
    _log("second_factor_set_up", login.get_username())


@unlimited()
def _log(event: str, username: str, **payload: int) -> None:
    Event.objects.create(type=event, actor=f"operator:{username}", payload=payload)
