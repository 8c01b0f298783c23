"""Operators' logins and groups, styled like the other pages."""

from typing import Any, cast

# Imported first, because these modules register the admin classes that are unregistered below.
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

for model in (User, Group, TOTPDevice, StaticDevice):  # no operator may see the keys of second factors
    admin.site.unregister(model)


class LimitForm(forms.models.BaseInlineFormSet):  # type: ignore[type-arg]
    """The formset of the applications that a login is limited to."""

    def clean(self) -> None:
        """Reject limits for a superuser, who could remove them."""
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
        """Show the staff page."""
        return cast(HttpResponse, Staff.as_view(admin=self)(request))


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, PageAdmin):  # type: ignore[misc]
    """Groups of operators, with their permissions."""
