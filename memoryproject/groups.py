"""Who may do what in the admin: three groups, which each `migrate` makes equal to the table here.

That isn't one migration's to do: Django makes permissions after the last migration, and models that come later bring
more. Groups of other names are the operators' own.
"""

from typing import Any

from django.apps import apps
from django.contrib.auth.management import create_permissions
from django.db.models import Q

# Whoever enters an address has the site send there, and an address may open something by itself.
WEBHOOKS = Q(content_type__app_label="moments_app", content_type__model__in=["webhookendpoint", "webhookdelivery"])
KEYS = Q(content_type__app_label="sessions_app", content_type__model="apikey")
# Apps of memory and prompts: viewers see all of their tables, and editors change them. Extras add their labels.
MEMORY = ["moments_app"]
# A person all together: contexts, the recall console, trials of prompts. An export takes yet another right.
READ = Q(content_type__app_label="sessions_app", codename__in=["read_userprofile", "preview_context"])
# Of the transcript what isn't a deletion.
TRANSCRIPT = Q(content_type__app_label="sessions_app", codename__in=["change_session", "change_userprofile"])


def groups() -> dict[str, Q]:
    """Return the rights of each group."""
    memory = Q(content_type__app_label__in=MEMORY)
    shown = memory | Q(content_type__app_label__in=["sessions_app", "django_q"])
    # Neither keys nor logins, nor what Django and others keep of those.
    view = shown & Q(codename__startswith="view_") & ~KEYS & ~WEBHOOKS
    edit = (memory & ~WEBHOOKS) | TRANSCRIPT
    return {"viewers": view, "editors": view | READ | edit, "administrators": Q()}


def register_groups(**_: Any) -> None:
    """Make the groups equal to the table; make permissions too, where `migrate` hasn't come to that yet."""
    from django.contrib.auth.models import Group, Permission

    for app in apps.get_app_configs():
        create_permissions(app, verbosity=0)
    for name, rights in groups().items():
        group, _created = Group.objects.get_or_create(name=name)
        group.permissions.set(Permission.objects.filter(rights))
