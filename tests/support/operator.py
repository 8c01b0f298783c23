"""Operators: logins of the admin, and a client that is logged in as one."""

from django.contrib.auth.models import Permission, User
from django.test import Client


def operator(*permissions: str) -> Client:
    """A client of somebody who may do everything; or only what is named.

    Args:
        permissions: codenames, or the beginning of several: `view_` is everything that begins so.
    """
    name = "-".join(permissions) or "root"
    user = User.objects.create_user(name, is_staff=True, is_superuser=not permissions)
    for prefix in permissions:
        user.user_permissions.add(*Permission.objects.filter(codename__startswith=prefix))
    client = Client()
    client.force_login(user)
    return client
