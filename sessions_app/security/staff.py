"""The staff: roles, invitations and deactivation.

An invitation is a login without a password, and a link to set the password, which contains Django's password reset
token. The link is valid for `PASSWORD_RESET_TIMEOUT` (three days), until it is used, a new link is created, or the
login is deactivated.
"""

from collections.abc import Collection
from dataclasses import dataclass

from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group, User
from django.contrib.auth.tokens import default_token_generator
from django.db import transaction
from django.db.models import QuerySet

from sessions_app.models import Application, Event, LoginLimit
from sessions_app.refusals import Conflict, Refusal


@dataclass(frozen=True)
class Role:
    """A named set of permissions."""

    name: str
    group: str  # name of the group with the role's permissions, which `migrate` sets
    may: str  # what the role allows
    may_not: str = ""


ROLES = (
    Role(
        "viewer",
        "viewers",
        "Sees conversations, memory and the state of the system.",
        "Can't change anything, and can't see API keys, logins, contexts, prompt trials or the playground.",
    ),
    Role(
        "editor",
        "editors",
        "Can also see everything about a person, correct, retract and release memory, edit and try prompts, "
        "use the playground, and retry jobs.",
        "Can't create API keys, invite staff, export people, or erase anyone except test people.",
    ),
    Role(
        "administrator",
        "administrators",
        "Can do everything, including API keys, limits, staff, exports, erasures and schedules.",
    ),
)
_BY_GROUP = {role.group: role for role in ROLES}
_BY_NAME = {role.name: role for role in ROLES}


class ChangeNotAllowed(Refusal):
    """An operator may not change this login. The message says why."""


def role_of(login: User) -> str:
    """Return the name of a login's highest role, or `superuser`, or `custom permissions` if it has no role."""
    if login.is_superuser:
        return "superuser"
    groups = {group.name for group in login.groups.all()}
    held = [role.name for role in ROLES if role.group in groups]
    return held[-1] if held else "custom permissions"


def state_of(login: User) -> str:
    if not (login.is_active and login.is_staff):
        return "deactivated"
    return "active" if login.has_usable_password() else "invited"


def all_logins() -> QuerySet[User]:
    return User.objects.prefetch_related("groups", "limits__application").order_by("username")


# --- invitations ---


@transaction.atomic
def invite(
    username: str, *, role: str, actor: str, email: str = "", applications: Collection[Application] = ()
) -> User:
    """Create a login without a password.

    No email is sent; the address is only stored. Without `applications`, the login isn't limited to any. Raise Conflict
    if a login with this name exists, ignoring case.
    """
    if User.objects.filter(username__iexact=username).exists():
        raise Conflict(f"username: the login {username} already exists. Choose another name.")
    login = User.objects.create_user(username, email, is_staff=True)
    LoginLimit.objects.bulk_create(LoginLimit(login=login, application=one) for one in applications)
    _set_role(login, role)
    _log("login_invited", actor, login, role=role)
    return login


def invitation_token(login: User) -> str:
    return f"{login.pk}-{default_token_generator.make_token(login)}"


def login_of_invitation(token: str) -> User | None:
    """Return the login that may set its password with a token. None if the token is not valid."""
    pk, _, signed = token.partition("-")
    try:
        login = User.objects.filter(pk=pk, is_active=True, is_staff=True).first()
    except ValueError:
        return None
    is_invited = login is not None and not login.has_usable_password()
    return login if is_invited and default_token_generator.check_token(login, signed) else None


@transaction.atomic
def accept_invitation(token: str, password: str) -> User | None:
    """Set the password of an invited login, and return the login. None if the token is not valid."""
    login = login_of_invitation(token)
    # If two requests use the link at the same time, only the first one finds a row with the old password.
    unused = User.objects.filter(pk=login.pk, password=login.password) if login else User.objects.none()
    if login is None or not unused.update(password=make_password(password)):
        return None
    _log("login_joined", f"operator:{login.username}", login)
    return login


@transaction.atomic
def invite_again(login: User, *, by: User) -> None:
    """Reset a login's password. The old password and earlier links are no longer valid."""
    _check_may_change(login, by)
    login.set_unusable_password()
    login.save(update_fields=["password"])
    _log("login_invited_again", _actor(by), login)


# --- roles ---


@transaction.atomic
def set_role(login: User, role: str, *, by: User) -> None:
    """Replace a login's role, but not its other groups. Raise ChangeNotAllowed if the operator may not."""
    _check_may_change(login, by)
    if login.is_superuser:
        raise ChangeNotAllowed("A superuser has all permissions, whatever the role. Remove the superuser status first.")
    _set_role(login, role)
    _log("login_role_changed", _actor(by), login, role=role)


@transaction.atomic
def set_active(login: User, *, by: User, is_active: bool) -> None:
    """Activate a login, or deactivate it from the next request on.

    Raises:
        ChangeNotAllowed: the operator may not change this login.
    """
    _check_may_change(login, by)
    login.is_active = is_active
    login.is_staff = login.is_staff or is_active
    login.save(update_fields=["is_active", "is_staff"])
    _log("login_reactivated" if is_active else "login_deactivated", _actor(by), login)


def _set_role(login: User, role: str) -> None:
    login.groups.remove(*Group.objects.filter(name__in=_BY_GROUP))
    login.groups.add(Group.objects.get(name=_BY_NAME[role].group))


def _check_may_change(login: User, by: User) -> None:
    """Raise ChangeNotAllowed if the operator may not change this login.

    Operators can't change their own login, so an administrator always remains. Only superusers can change superusers.
    """
    if login.pk == by.pk:
        raise ChangeNotAllowed("You can't change your own role or login. Ask another administrator.")
    if login.is_superuser and not by.is_superuser:
        raise ChangeNotAllowed("Only a superuser can change the login of a superuser.")


def _actor(by: User) -> str:
    return f"operator:{by.get_username()}"


def _log(event: str, actor: str, login: User, **payload: str) -> None:
    Event.objects.create(type=event, actor=actor, payload={"login": login.get_username(), **payload})
