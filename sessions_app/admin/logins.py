"""Operators' logins and groups, and the pages of a login's second factor."""

from typing import Any, cast

# Imported first, because these modules register the admin classes that are unregistered below.
import django_otp.plugins.otp_static.admin
import django_otp.plugins.otp_totp.admin  # noqa: F401
from django import forms
from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django_otp.plugins.otp_static.models import StaticDevice
from django_otp.plugins.otp_totp.models import TOTPDevice
from unfold.admin import TabularInline
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from sessions_app.admin.base import PageAdmin
from sessions_app.admin.links import change_url, page_url
from sessions_app.admin.staff import (
    Accept,
    ChangeRole,
    Deactivate,
    Invite,
    InviteAgain,
    Reactivate,
    Staff,
)
from sessions_app.admin.views import FormPage, OperatorPage, RowAction
from sessions_app.models import LoginLimit
from sessions_app.security import second_factor
from sessions_app.security.second_factor import Offer

WRONG = "This code is wrong or was already used. Try again with a new code; each wrong code lengthens the wait."

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
        # This page has no links, because all others are blocked until the second factor is verified.
        is_in = second_factor.is_verified(self.request) or not second_factor.is_required()
        return {"layout": "admin/base_site.html" if is_in else "unfold/layouts/unauthenticated.html"}


class SecondFactor(OwnPage):
    """Shows whether the login has a second factor, and a QR code to set one up."""

    route, name, title = "second-factor/", "second_factor", "Second factor"
    template_name = "operator/logins/second_factor.html"

    def context(self) -> dict[str, Any]:
        shown = super().context() | {"is_required": second_factor.is_required()}
        if second_factor.has_one(self.login):
            return shown | {"left": second_factor.recovery_codes_left(self.login)}
        return shown | {"offer": Offer(self.login)}

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        """Save the key if the code was made with it."""
        offer = Offer.brought_back(self.login, request.POST.get("offer", ""))
        if offer is None or second_factor.has_one(self.login):
            return self.page(problem="This page has expired. Scan the new QR code and try again.")
        device = offer.take(self.code())
        if device is None:
            return self.page(offer=offer, problem="The code is wrong. Enter the code that the app shows now.")
        second_factor.enter(request, device)
        second_factor.note_set_up(self.login)
        return self.recovery_codes()

    def recovery_codes(self) -> HttpResponse:
        """Show new recovery codes once. A redirect would need a message, which would store them in a cookie."""
        return self.page(offer=None, codes=second_factor.new_recovery_codes(self.login))


class RecoveryCodes(SecondFactor):
    """Creates new recovery codes."""

    route, name = "second-factor/codes/", "recovery_codes"
    http_method_names = ["post"]

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        if not second_factor.has_one(self.login) or not second_factor.verify(request, self.code()):
            return self.page(problem=WRONG)
        return self.recovery_codes()


class TurnOff(SecondFactor):
    """Removes the operator's own second factor."""

    route, name = "second-factor/off/", "turn_off"
    http_method_names = ["post"]

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        if second_factor.is_required():
            return self.page(problem="The second factor is required for all staff. It can't be turned off.")
        if not second_factor.has_one(self.login) or not second_factor.verify(request, self.code()):
            return self.page(problem=WRONG)
        second_factor.remove(self.login, actor=self.actor)
        messages.success(request, "The second factor is turned off.")
        return HttpResponseRedirect(page_url(User, SecondFactor.name))


class GiveCode(OwnPage):
    """Asks for the code before any other page."""

    route, name, title = "second-factor/code/", "give_code", "Second factor"
    template_name = "operator/logins/give_code.html"

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        return self._go_on() if self._is_through() else self.page()

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        if self._is_through() or second_factor.verify(request, self.code()):
            return self._go_on()
        return self.page(problem=WRONG)

    def context(self) -> dict[str, Any]:
        return {"next": self._next()}

    def _is_through(self) -> bool:
        return second_factor.is_verified(self.request) or not second_factor.has_one(self.login)

    def _next(self) -> str:
        """Return the URL that was requested before this page, if it is on this site."""
        asked = self.request.POST.get("next") or self.request.GET.get("next", "")
        is_ours = url_has_allowed_host_and_scheme(asked, {self.request.get_host()}, self.request.is_secure())
        return asked if is_ours else reverse("admin:index")

    def _go_on(self) -> HttpResponse:
        return HttpResponseRedirect(self._next())


class LoginForm(FormPage[User]):
    """The page of a login, with a button that removes its second factor."""

    before = "operator/logins/login.html"

    def context(self) -> dict[str, Any]:
        has_one = second_factor.has_one(self.row)
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
        GiveCode,
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
