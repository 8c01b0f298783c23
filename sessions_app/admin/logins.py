"""Operators' logins and groups: pages for the second factor, for the staff, and for invitations."""

from functools import cached_property, partial
from typing import Any, cast

# Imported first, because these modules register the admin classes that are unregistered below.
import django_otp.plugins.otp_static.admin
import django_otp.plugins.otp_totp.admin  # noqa: F401
from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth import authenticate, login
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.models import Group, User
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django_otp.plugins.otp_static.models import StaticDevice
from django_otp.plugins.otp_totp.models import TOTPDevice
from unfold.admin import TabularInline
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from sessions_app.admin.applications import are_several
from sessions_app.admin.base import PageAdmin
from sessions_app.admin.links import change_url, list_url, page_url
from sessions_app.admin.views import FormPage, OperatorPage, RowAction
from sessions_app.models import Application, LoginLimit
from sessions_app.refusals import Refusal
from sessions_app.security import second_factor, staff
from sessions_app.security.second_factor import UnconfirmedKey, login_of
from sessions_app.security.staff import ROLES

WRONG = "This code is wrong or was already used. Try again with a new code; each wrong code lengthens the wait."

DAY = 86_400  # seconds
ROLE_CHOICES = [(role.name, role.name) for role in ROLES]

for model in (User, Group, TOTPDevice, StaticDevice):  # no operator may see the keys of second factors
    admin.site.unregister(model)


class CodeForm(forms.Form):
    """A code from the authenticator app, or a recovery code."""

    code = forms.CharField(max_length=32)


class OwnPage(OperatorPage):
    """A page about the operator's own login. Open to everyone who may enter the admin."""

    def may_enter(self) -> bool:
        return True

    @property
    def login(self) -> User:
        return second_factor.login_of(self.request)

    def code(self) -> str:
        form = CodeForm(self.request.POST)
        return form.cleaned_data["code"] if form.is_valid() else ""

    def context(self) -> dict[str, Any]:
        # Without a verified second factor, use a layout without links, because all other pages are blocked.
        is_in = second_factor.is_verified(self.request) or not second_factor.is_required()
        return {"layout": "admin/base_site.html" if is_in else "unfold/layouts/unauthenticated.html"}


class SecondFactor(OwnPage):
    """Shows whether the login has a second factor, and a QR code to set one up."""

    route, name, title = "second-factor/", "second_factor", "Second factor"
    template_name = "operator/logins/second_factor.html"

    def context(self) -> dict[str, Any]:
        shown = super().context() | {"is_required": second_factor.is_required()}
        if second_factor.is_set_up(self.login):
            return shown | {"left": second_factor.recovery_codes_left(self.login)}
        return shown | {"offer": UnconfirmedKey(self.login)}

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """Save the key if the code proves that the app has it."""
        offer = UnconfirmedKey.from_form(self.login, request.POST.get("offer", ""))
        if offer is None or second_factor.is_set_up(self.login):
            return self.page(problem="This page has expired. Scan the new QR code and try again.")
        device = offer.confirm(self.code())
        if device is None:
            return self.page(offer=offer, problem="The code is wrong. Enter the code that the app shows now.")
        second_factor.mark_verified(request, device)
        second_factor.log_setup(self.login)
        return self.recovery_codes()

    def recovery_codes(self) -> HttpResponse:
        """Show new recovery codes once. A redirect would need a message, which would store them in a cookie."""
        return self.page(offer=None, codes=second_factor.new_recovery_codes(self.login))


class RecoveryCodes(SecondFactor):
    """Creates new recovery codes."""

    route, name = "second-factor/codes/", "recovery_codes"
    http_method_names = ["post"]

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        if not second_factor.is_set_up(self.login) or not second_factor.verify(request, self.code()):
            return self.page(problem=WRONG)
        return self.recovery_codes()


class TurnOff(SecondFactor):
    """Removes the operator's own second factor."""

    route, name = "second-factor/off/", "turn_off"
    http_method_names = ["post"]

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        if second_factor.is_required():
            return self.page(problem="The second factor is required for all staff. It can't be turned off.")
        if not second_factor.is_set_up(self.login) or not second_factor.verify(request, self.code()):
            return self.page(problem=WRONG)
        second_factor.remove(self.login, actor=self.actor)
        messages.success(request, "The second factor is turned off.")
        return HttpResponseRedirect(page_url(User, SecondFactor.name))


class EnterCode(OwnPage):
    """Asks for the code before any other page."""

    route, name, title = "second-factor/code/", "give_code", "Second factor"
    template_name = "operator/logins/give_code.html"

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        return self._redirect_to_next() if self._is_done() else self.page()

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        if self._is_done() or second_factor.verify(request, self.code()):
            return self._redirect_to_next()
        return self.page(problem=WRONG)

    def context(self) -> dict[str, Any]:
        return {"next": self._next()}

    def _is_done(self) -> bool:
        return second_factor.is_verified(self.request) or not second_factor.is_set_up(self.login)

    def _next(self) -> str:
        """Return the URL that was requested before this page, if it is on this site."""
        asked = self.request.POST.get("next") or self.request.GET.get("next", "")
        is_ours = url_has_allowed_host_and_scheme(asked, {self.request.get_host()}, self.request.is_secure())
        return asked if is_ours else reverse("admin:index")

    def _redirect_to_next(self) -> HttpResponse:
        return HttpResponseRedirect(self._next())


class LoginForm(FormPage[User]):
    """The page of a login, with a button that removes its second factor."""

    before = "operator/logins/login.html"

    def context(self) -> dict[str, Any]:
        has_one = second_factor.is_set_up(self.row)
        may_remove = has_one and self.admin.has_change_permission(self.request, self.row)
        return {"login": self.row, "has_second_factor": has_one, "may_remove": may_remove}


class RemoveSecondFactor(RowAction[User]):
    """Removes a login's second factor, for an operator who lost it."""

    route, name = "<path:pk>/second-factor/remove/", "remove_second_factor"

    def change(self, login: User) -> str:
        second_factor.remove(login, actor=self.actor)
        self.log(login, "Removed the second factor.", f"Removed the second factor of {login}.")
        return change_url(login)


class LimitForm(forms.models.BaseInlineFormSet):  # type: ignore[type-arg]
    def clean(self) -> None:
        """Reject limits for superusers, because they could remove the limits themselves."""
        super().clean()
        if self.instance.is_superuser and any(
            form.cleaned_data and not form.cleaned_data.get("DELETE") for form in self.forms
        ):
            raise forms.ValidationError("A superuser sees all applications. Remove the superuser status first.")


class LimitInline(TabularInline):  # type: ignore[misc]
    """The applications that a login is limited to. Without any, it sees all."""

    model = LoginLimit
    formset = LimitForm
    extra = 0


# --- staff and invitations ---


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
            "people": [_shown(user) for user in staff.all_logins()],
            "with_second_factor": set(second_factor.confirmed_devices().values_list("user", flat=True)),
            "roles": ROLES,
            "form": InviteForm(initial={"role": ROLES[0].name}),
            "may_invite": self.admin.has_add_permission(request),
            "may_change": self.admin.has_change_permission(request),
            "applications": Application.objects.all() if are_several() else [],
            "days": settings.PASSWORD_RESET_TIMEOUT // DAY,
        }

    def with_invitation(self, user: User, *, again: bool = False) -> HttpResponse:
        """Show a login's invitation link once. A redirect would need a message, which would store it in a cookie."""
        link = self.request.build_absolute_uri(page_url(User, Accept.name, staff.invitation_token(user)))
        return self.page(invited=user, link=link, again=again)


def _shown(user: User) -> tuple[User, str, str]:
    return user, staff.role_of(user), staff.state_of(user)


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
            user = staff.invite(given.pop("username"), **given, actor=self.actor)
        except Refusal as error:
            return self.page(status=409, form=form, problem=str(error))
        self.admin.log_addition(request, user, f"Invited as {given['role']}.")
        return self.with_invitation(user)


class LoginAction(RowAction[User]):
    """A change to a login."""

    entry = ""  # entry in the login's history
    message = ""  # message to the operator; follows the login's name

    def change(self, user: User) -> str:
        do = partial(self.do, user, login_of(self.request))
        self.attempt(user, do, log=self.entry, message=f"{user} {self.message}", about=str(user))
        return list_url(User)

    def do(self, user: User, by: User) -> None:
        """Change a login. Raise a `Refusal` if that is not allowed."""
        raise NotImplementedError


class ChangeRole(LoginAction):
    """Changes a login's role."""

    route, name = "<int:pk>/role/", "role"
    message = "has a new role."

    @property
    def entry(self) -> str:  # type: ignore[override]
        return f"Role changed to {self.request.POST.get('role')}."

    def do(self, user: User, by: User) -> None:
        form = RoleForm(self.request.POST)
        if not form.is_valid():
            raise Refusal("Choose a role from the list.")
        staff.set_role(user, form.cleaned_data["role"], by=by)


class Deactivate(LoginAction):
    """Deactivates a login. Its open sessions end at their next request."""

    route, name = "<int:pk>/deactivate/", "deactivate"
    entry, message = "Deactivated.", "can no longer log in."

    def do(self, user: User, by: User) -> None:
        staff.set_active(user, by=by, is_active=False)


class Reactivate(LoginAction):
    """Reactivates a login."""

    route, name = "<int:pk>/reactivate/", "reactivate"
    entry, message = "Reactivated.", "can log in again."

    def do(self, user: User, by: User) -> None:
        staff.set_active(user, by=by, is_active=True)


class InviteAgain(RowAction[User]):
    """Creates a new link for someone who lost theirs, or who forgot the password."""

    route, name = "<int:pk>/invite/", "invite_again"

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        user = self.row
        page = Staff(admin=self.admin)
        page.setup(request)
        try:
            staff.invite_again(user, by=login_of(request))
        except Refusal as error:
            return page.page(status=409, problem=f"{user}: {error}")
        self.admin.log_change(request, user, "Invited again.")
        return page.with_invitation(user, again=True)


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
        joined = staff.accept_invitation(self.kwargs["token"], password)
        known = authenticate(request, username=joined.get_username(), password=password) if joined else None
        if known is not None:  # IP addresses that are blocked for guessing passwords are blocked here too
            login(request, known)
        return HttpResponseRedirect(reverse("admin:index"))

    @cached_property
    def invited(self) -> User | None:
        """Return the login of the link. None if the link is no longer valid, or the visitor is already logged in."""
        return None if self._is_in() else staff.login_of_invitation(self.kwargs["token"])

    def _is_in(self) -> bool:
        return bool(self.request.user.is_authenticated)

    def context(self) -> dict[str, Any]:
        return {"invited": self.invited, "is_in": self._is_in(), "is_required": second_factor.is_required()}


# --- lists ---


@admin.register(User)
class LoginAdmin(DjangoUserAdmin, PageAdmin):  # type: ignore[type-arg, misc]
    """Operators. The list is replaced by a page about the staff; Django's form edits single permissions."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    form_page = LoginForm
    inlines = (LimitInline,)
    views = (
        SecondFactor,
        RecoveryCodes,
        TurnOff,
        EnterCode,
        RemoveSecondFactor,
        Invite,
        InviteAgain,
        ChangeRole,
        Deactivate,
        Reactivate,
        Accept,
    )

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return cast(HttpResponse, Staff.as_view(admin=self)(request))


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, PageAdmin):  # type: ignore[misc]
    """Groups of operators, with their permissions."""
