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
# Neither keys nor logins, nor what Django and others keep of those.
VIEW = (
    Q(codename__startswith="view_", content_type__app_label__in=["sessions_app", "moments_app", "django_q"])
    & ~KEYS
    & ~WEBHOOKS
)
# A person all together: contexts, the recall console, trials of prompts. An export takes yet another right.
READ = Q(content_type__app_label="sessions_app", codename__in=["read_userprofile", "preview_context"])
# Prompts, memory and jobs are `moments_app`; of the transcript what isn't a deletion.
EDIT = (Q(content_type__app_label="moments_app") & ~WEBHOOKS) | Q(
    content_type__app_label="sessions_app", codename__in=["change_session", "change_userprofile"]
)
GROUPS = {"viewers": VIEW, "editors": VIEW | READ | EDIT, "administrators": Q()}


def register_groups(**_: Any) -> None:
    """Make the groups equal to the table; make permissions too, where `migrate` hasn't come to that yet."""
    from django.contrib.auth.models import Group, Permission

    for app in apps.get_app_configs():
        create_permissions(app, verbosity=0)
    for name, rights in GROUPS.items():
        group, _created = Group.objects.get_or_create(name=name)
        group.permissions.set(Permission.objects.filter(rights))
