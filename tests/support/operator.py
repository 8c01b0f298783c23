"""Operators: logins of the admin, with a logged-in client."""

from django.contrib.auth.models import Group, Permission, User
from django.test import Client


def operator(*permissions: str, group: str = "") -> Client:
    """Return a client of a superuser, or of an operator with only these permissions.

    Args:
        permissions: Codenames, or the prefix of several: `view_` is every permission that starts with it.
        group: The name of the operator's group.
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
