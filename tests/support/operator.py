"""Operators: logins of the admin, and a client that is logged in as one."""

from django.contrib.auth.models import Group, Permission, User
from django.test import Client


def operator(*permissions: str, group: str = "") -> Client:
    """A client of somebody who may do everything; or only what is named.

    Args:
        permissions: codenames, or the beginning of several: `view_` is everything that begins so.
        group: name of a group they are in.
    """
    name = "-".join(filter(None, (*permissions, group))) or "root"
    user = User.objects.create_user(name, is_staff=True, is_superuser=not (permissions or group))
    if group:
        user.groups.add(Group.objects.get(name=group))
    for prefix in permissions:
        user.user_permissions.add(*Permission.objects.filter(codename__startswith=prefix))
    client = Client()
    client.force_login(user)
    return client
