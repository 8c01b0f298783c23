"""System checks of the extra. Web servers run them when they start."""

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error
from django.db import connection

from memory_extras.oauth.conf import current
from sessions_app.models import Application


def known_application(databases: Sequence[str] | None, **_: Any) -> list[CheckMessage]:
    """Report an error if the end users' application doesn't exist."""
    name = current().openid_application
    if not (databases and name) or Application._meta.db_table not in connection.introspection.table_names():
        return []  # before the first `migrate`, there are no applications
    if Application.objects.filter(name=name).exists():
        return []
    hint = "Create it with manage.py create_application, or correct the setting."
    return [Error(f"OAUTH__OPENID_APPLICATION: There is no application {name!r}.", hint=hint, id="oauth.E001")]
