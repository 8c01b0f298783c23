"""The staff page with its actions, and the page that an invitation link opens."""

from functools import cached_property, partial
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth import authenticate, login
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.models import User
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

from sessions_app.admin.applications import are_several
from sessions_app.admin.links import list_url, page_url
from sessions_app.admin.views import OperatorPage, RowAction
from sessions_app.models import Application
from sessions_app.refusals import Refusal
from sessions_app.security import staff
from sessions_app.security.second_factor import is_required, login_of, set_up
from sessions_app.security.staff import ROLES

DAY = 86_400  # seconds
ROLE_CHOICES = [(role.name, role.name) for role in ROLES]


class InviteForm(forms.Form):
    username = forms.CharField(max_length=150, validators=[UnicodeUsernameValidator()])
    email = forms.EmailField(required=False)
    role = forms.ChoiceField(choices=ROLE_CHOICES)
    applications = forms.ModelMultipleChoiceField(Application.objects.all(), required=False)


class RoleForm(forms.Form):
    role = forms.ChoiceField(choices=ROLE_CHOICES)


class Staff(OperatorPage):
    """Lists the staff and their roles. Replaces Django's list of users."""

    name = "changelist"
    title = "Staff"
    template_name = "operator/logins/staff.html"

    def context(self) -> dict[str, Any]:
        request = self.request
        return {
            "people": [_shown(one) for one in staff.everybody()],
            "with_second_factor": set(set_up().values_list("user", flat=True)),
            "roles": ROLES,
            "form": InviteForm(initial={"role": ROLES[0].name}),
            "may_invite": self.admin.has_add_permission(request),
            "may_change": self.admin.has_change_permission(request),
            "applications": Application.objects.all() if are_several() else [],
            "days": settings.PASSWORD_RESET_TIMEOUT // DAY,
        }

    def with_invitation(self, one: User, *, again: bool = False) -> HttpResponse:
        """Render the page with a login's link, once. A redirect would store the link in a cookie, as a message."""
        link = self.request.build_absolute_uri(page_url(User, Accept.name, staff.invitation_to(one)))
        return self.page(invited=one, link=link, again=again)


def _shown(one: User) -> tuple[User, str, str]:
    return one, staff.role_of(one), staff.state_of(one)


class Invite(Staff):
    """Creates a login, and shows the link where its owner sets the password."""

    route, name, permission = "invite/", "invite", "add"
    http_method_names = ["post"]

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        form = InviteForm(request.POST)
        if not form.is_valid():
            return self.page(status=400, form=form)
        given = form.cleaned_data
        try:
            one = staff.invite(given.pop("username"), **given, actor=self.actor)
        except Refusal as error:
            return self.page(status=409, form=form, problem=str(error))
        self.admin.log_addition(request, one, f"Invited as {given['role']}.")
        return self.with_invitation(one)


class LoginAction(RowAction[User]):
    """A change to a login."""

    entry = ""  # in the login's history
    told = ""  # the message to the operator, after the login's name

    def change(self, one: User) -> str:
        do = partial(self.do, one, login_of(self.request))
        self.attempt(one, do, log=self.entry, message=f"{one} {self.told}", about=str(one))
        return list_url(User)

    def do(self, one: User, by: User) -> None:
        """Change a login. Raise a `Refusal` if that is not allowed."""
        raise NotImplementedError


class ChangeRole(LoginAction):
    """Changes a login's role."""

    route, name = "<int:pk>/role/", "role"
    told = "has a new role."

    @property
    def entry(self) -> str:  # type: ignore[override]
        return f"Role changed to {self.request.POST.get('role')}."

    def do(self, one: User, by: User) -> None:
        form = RoleForm(self.request.POST)
        if not form.is_valid():
            raise Refusal("role: choose a role from the list.")
        staff.give_role(one, form.cleaned_data["role"], by=by)


class Deactivate(LoginAction):
    """Deactivates a login. Open sessions end with their next request."""

    route, name = "<int:pk>/deactivate/", "deactivate"
    entry, told = "Deactivated.", "can no longer log in."

    def do(self, one: User, by: User) -> None:
        staff.set_active(one, by=by, is_active=False)


class Reactivate(LoginAction):
    """Reactivates a login."""

    route, name = "<int:pk>/reactivate/", "reactivate"
    entry, told = "Reactivated.", "can log in again."

    def do(self, one: User, by: User) -> None:
        staff.set_active(one, by=by, is_active=True)


class InviteAgain(RowAction[User]):
    """Creates a new link for someone who lost theirs, or who forgot the password."""

    route, name = "<int:pk>/invite/", "invite_again"

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        one = self.row
        page = Staff(admin=self.admin)
        page.setup(request)
        try:
            staff.invite_again(one, by=login_of(request))
        except Refusal as error:
            return page.page(status=409, problem=f"{one}: {error}")
        self.admin.log_change(request, one, "Invited again.")
        return page.with_invitation(one, again=True)


@method_decorator([sensitive_post_parameters(), never_cache], name="dispatch")
class Accept(OperatorPage):
    """The page that an invitation link opens. Its visitor sets the password, and is then logged in."""

    route, name, is_open = "invitation/<str:token>/", "invitation", True
    title = "Invitation"
    template_name = "operator/logins/invitation.html"

    def may_enter(self) -> bool:
        return True

    def page(self, *, status: int = 200, **more: Any) -> HttpResponse:
        """Render the page, with status 410 if the link is no longer valid."""
        is_void = self.invited is None and not self._is_in()
        return super().page(status=410 if is_void else status, **more)

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        if self.invited is None:
            return self.page()
        form = SetPasswordForm(self.invited, request.POST)
        if not form.is_valid():
            return self.page(status=400, form=form)
        password = form.cleaned_data["new_password1"]
        joined = staff.join(self.kwargs["token"], password)
        known = authenticate(request, username=joined.get_username(), password=password) if joined else None
        if known is not None:  # IP addresses that are blocked for guessing passwords are blocked here too
            login(request, known)
        return HttpResponseRedirect(reverse("admin:index"))

    @cached_property
    def invited(self) -> User | None:
        """Return the login of the link. None if the link is no longer valid, or the visitor is already logged in."""
        return None if self._is_in() else staff.invited_by(self.kwargs["token"])

    def _is_in(self) -> bool:
        return bool(self.request.user.is_authenticated)

    def context(self) -> dict[str, Any]:
        return {"invited": self.invited, "is_in": self._is_in(), "is_required": is_required()}
