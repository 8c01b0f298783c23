"""Logins of operators and their groups, in the look of the other pages."""

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from sessions_app.admin.base import PageAdmin

admin.site.unregister(User)
admin.site.unregister(Group)


@admin.register(User)
class LoginAdmin(DjangoUserAdmin, PageAdmin):  # type: ignore[type-arg, misc]
    """Operators."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, PageAdmin):  # type: ignore[misc]
    """Groups of operators, with what they may do."""
