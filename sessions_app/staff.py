"""People who work here: the role that each has, letting somebody in by an invitation, and keeping somebody out.

An invitation is a login without a password, and a link to choose one, with Django's password reset token. The link ends
with its first use, with the next link, when the login is deactivated, and after `PASSWORD_RESET_TIMEOUT` (three days).
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
    """What somebody may do, by a name.

    Args:
        name: of whoever has it.
        group: that each `migrate` gives its rights.
        may: what they may do, in words.
        may_not: what they may not.
    """

    name: str
    group: str
    may: str
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


class NotTheirs(Refusal):
    """An operator may not change this login; the message says why."""


def role_of(login: User) -> str:
    """Name what somebody may do: the highest of their roles, or else how they come to their rights."""
    if login.is_superuser:
        return "superuser"
    groups = {group.name for group in login.groups.all()}
    held = [role.name for role in ROLES if role.group in groups]
    return held[-1] if held else "custom permissions"


def state_of(login: User) -> str:
    """Tell whether somebody works here, was invited, or is kept out."""
    if not (login.is_active and login.is_staff):
        return "deactivated"
    return "active" if login.has_usable_password() else "invited"


def everybody() -> QuerySet[User]:
    """Return all logins with what their roles follow from, by name."""
    return User.objects.prefetch_related("groups", "limits__application").order_by("username")


# --- invitations ---


@transaction.atomic
def invite(
    username: str, *, role: str, actor: str, email: str = "", applications: Collection[Application] = ()
) -> User:
    """Make a login that has no password yet.

    Args:
        username: that nobody has.
        role: the name of one of `ROLES`.
        actor: who invites: operator:….
        email: for the record; nothing is sent.
        applications: that it is limited to; none: it sees all.

    Raises:
        Conflict: there is a login of this name, whatever its case.
    """
    if User.objects.filter(username__iexact=username).exists():
        raise Conflict(f"username: the login {username} already exists. Choose another name.")
    login = User.objects.create_user(username, email, is_staff=True)
    LoginLimit.objects.bulk_create(LoginLimit(login=login, application=one) for one in applications)
    _put_in(login, role)
    _log("login_invited", actor, login, role=role)
    return login


def invitation_to(login: User) -> str:
    """Return the token of a login's invitation."""
    return f"{login.pk}-{default_token_generator.make_token(login)}"


def invited_by(token: str) -> User | None:
    """Return the login that may choose a password with a token; None if the token is void."""
    pk, _, signed = token.partition("-")
    try:
        login = User.objects.filter(pk=pk, is_active=True, is_staff=True).first()
    except ValueError:
        return None
    is_invited = login is not None and not login.has_usable_password()
    return login if is_invited and default_token_generator.check_token(login, signed) else None


@transaction.atomic
def join(token: str, password: str) -> User | None:
    """Give an invited login its password; None if the token is void."""
    login = invited_by(token)
    # If two requests use the link at once, only one finds the unusable password unchanged.
    unused = User.objects.filter(pk=login.pk, password=login.password) if login else User.objects.none()
    if login is None or not unused.update(password=make_password(password)):
        return None
    _log("login_joined", f"operator:{login.username}", login)
    return login


@transaction.atomic
def invite_again(login: User, *, by: User) -> None:
    """Have somebody choose another password: the one they have, and former links, are void."""
    _refuse_own_and_higher(login, by)
    login.set_unusable_password()
    login.save(update_fields=["password"])
    _log("login_invited_again", _actor(by), login)


# --- roles ---


@transaction.atomic
def give_role(login: User, role: str, *, by: User) -> None:
    """Give somebody a role in place of the one they have; groups of other names stay.

    Raises:
        NotTheirs: it is the operator's own login, or a superuser's.
    """
    _refuse_own_and_higher(login, by)
    if login.is_superuser:
        raise NotTheirs("A superuser has all permissions, whatever the role. Remove the superuser status first.")
    _put_in(login, role)
    _log("login_role_changed", _actor(by), login, role=role)


@transaction.atomic
def let_in(login: User, *, by: User, is_active: bool) -> None:
    """Let somebody in again, or keep them out from their next page on.

    Raises:
        NotTheirs: it is the operator's own login, or a superuser's.
    """
    _refuse_own_and_higher(login, by)
    login.is_active = is_active
    login.is_staff = login.is_staff or is_active
    login.save(update_fields=["is_active", "is_staff"])
    _log("login_reactivated" if is_active else "login_deactivated", _actor(by), login)


def _put_in(login: User, role: str) -> None:
    login.groups.remove(*Group.objects.filter(name__in=_BY_GROUP))
    login.groups.add(Group.objects.get(name=_BY_NAME[role].group))


def _refuse_own_and_higher(login: User, by: User) -> None:
    """Refuse to change oneself, so that somebody is left who may; and whoever may do more."""
    if login.pk == by.pk:
        raise NotTheirs("You can't change your own role or login. Ask another administrator.")
    if login.is_superuser and not by.is_superuser:
        raise NotTheirs("Only a superuser can change the login of a superuser.")


def _actor(by: User) -> str:
    return f"operator:{by.get_username()}"


def _log(event: str, actor: str, login: User, **payload: str) -> None:
    Event.objects.create(type=event, actor=actor, payload={"login": login.get_username(), **payload})
