"""Logins of operators and their groups, in the look of the other pages."""

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django_otp.plugins.otp_static.models import StaticDevice
from django_otp.plugins.otp_totp.models import TOTPDevice
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

for model in (User, Group, TOTPDevice, StaticDevice):  # the keys of second factors are nobody's to look at
    admin.site.unregister(model)


@admin.register(User)
class LoginAdmin(DjangoUserAdmin, PageAdmin):  # type: ignore[type-arg, misc]
    """Operators."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    form_page = LoginForm
    views = (SecondFactor, RecoveryCodes, TurnOff, GiveCode, RemoveSecondFactor)


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, PageAdmin):  # type: ignore[misc]
    """Groups of operators, with what they may do."""
