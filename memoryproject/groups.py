"""The permissions of operators: three groups, which each `migrate` makes equal to the table here.

A migration can't do that, because Django creates permissions after the last migration, and later models add more.
Groups with other names belong to the operators.
"""

from typing import Any

from django.apps import apps
from django.contrib.auth.management import create_permissions
from django.db.models import Q

from sessions_app.people.provenance import declared

# An operator who enters a URL makes the site send requests to it, and a URL may contain a secret.
WEBHOOKS = Q(content_type__app_label="moments_app", content_type__model__in=["webhookendpoint", "webhookdelivery"])
KEYS = Q(content_type__app_label="sessions_app", content_type__model="apikey")
# Much data about one person: contexts, the recall console, prompt trials. An export needs yet another permission.
READ = Q(content_type__app_label="sessions_app", codename__in=["read_userprofile", "preview_context"])
# Changes of the transcript, except deletions.
TRANSCRIPT = Q(content_type__app_label="sessions_app", codename__in=["change_session", "change_userprofile"])


def memory_apps() -> set[str]:
    """Return the apps with a table that a process makes. Viewers see all of their tables, and editors change them."""
    return {table.model._meta.app_label for table in declared() if table.made_by}


def groups() -> dict[str, Q]:
    """Return the permissions of each group."""
    memory = Q(content_type__app_label__in=memory_apps())
    shown = memory | Q(content_type__app_label__in=["sessions_app", "django_q"])
    # Neither keys nor logins, nor the tables of Django and other packages about them.
    view = shown & Q(codename__startswith="view_") & ~KEYS & ~WEBHOOKS
    edit = (memory & ~WEBHOOKS) | TRANSCRIPT
    return {"viewers": view, "editors": view | READ | edit, "administrators": Q()}


def register_groups(**_: Any) -> None:
    """Make the groups equal to the table. Create missing permissions, because `migrate` may create them later."""
    from django.contrib.auth.models import Group, Permission

    for app in apps.get_app_configs():
        create_permissions(app, verbosity=0)
    for name, rights in groups().items():
        group, _created = Group.objects.get_or_create(name=name)
        group.permissions.set(Permission.objects.filter(rights))
