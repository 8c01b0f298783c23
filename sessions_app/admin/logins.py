"""Logins of operators and their groups, in the look of the other pages."""

from typing import Any, cast

# Whoever imports this first: they have registered what is withdrawn below.
import django_otp.plugins.otp_static.admin
import django_otp.plugins.otp_totp.admin  # noqa: F401
from django import forms
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest, HttpResponse
from django_otp.plugins.otp_static.models import StaticDevice
from django_otp.plugins.otp_totp.models import TOTPDevice
from unfold.admin import TabularInline
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from sessions_app.admin.base import PageAdmin
from sessions_app.admin.views.second_factor import (
    GiveCode,
    LoginForm,
    RecoveryCodes,
    RemoveSecondFactor,
    SecondFactor,
    TurnOff,
)
from sessions_app.admin.views.staff import (
    Accept,
    ChangeRole,
    Deactivate,
    Invite,
    InviteAgain,
    Reactivate,
    Staff,
)
from sessions_app.models import LoginLimit

for model in (User, Group, TOTPDevice, StaticDevice):  # the keys of second factors are nobody's to look at
    admin.site.unregister(model)


class LimitForm(forms.models.BaseInlineFormSet):  # type: ignore[type-arg]
    """The applications that a login is limited to."""

    def clean(self) -> None:
        """Refuse to limit a superuser, who could lift the limit."""
        super().clean()
        if self.instance.is_superuser and any(
            form.cleaned_data and not form.cleaned_data.get("DELETE") for form in self.forms
        ):
            raise forms.ValidationError("A superuser sees all applications. Remove the superuser status first.")


class LimitInline(TabularInline):  # type: ignore[misc]
    """Only these applications; without any, the login sees all."""

    model = LoginLimit
    formset = LimitForm
    extra = 0


@admin.register(User)
class LoginAdmin(DjangoUserAdmin, PageAdmin):  # type: ignore[type-arg, misc]
    """Operators: a page of who they are in place of a list, and Django's form with each permission behind it."""

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
        """Show the staff."""
        return cast(HttpResponse, Staff.as_view(admin=self)(request))


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, PageAdmin):  # type: ignore[misc]
    """Groups of operators, with what they may do."""
