from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.apps import AppConfig
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import connection

from memory_extras.oauth.conf import CODE_SECONDS, current


class OAuthConfig(AppConfig):
    """Assistants that request access by OAuth."""

    name = "memory_extras.oauth"
    label = "oauth"
    verbose_name = "OAuth"

    def ready(self) -> None:
        from memory_extras.oauth.access_tokens import TokenIssuer
        from memory_extras.oauth.models import Assistant, Code
        from memoryproject.database.clocks import EXTRA_COLUMNS
        from sessions_app.api.authentication import ISSUERS
        from sessions_app.clock import TimeColumn

        register(known_application, Tags.database)
        ISSUERS.append(TokenIssuer())
        EXTRA_COLUMNS.extend(
            [TimeColumn(Assistant, "created"), TimeColumn(Code, "expires", timedelta(seconds=CODE_SECONDS))]
        )


def known_application(databases: Sequence[str] | None, **_: Any) -> list[CheckMessage]:
    from sessions_app.models import Application

    name = current().openid_application
    if not (databases and name) or Application._meta.db_table not in connection.introspection.table_names():
        return []  # before the first `migrate`, the table of applications doesn't exist
    if Application.objects.filter(name=name).exists():
        return []
    hint = "Create it with manage.py create_application, or correct the setting."
    return [Error(f"OAUTH__OPENID_APPLICATION: There is no application {name!r}.", hint=hint, id="oauth.E001")]
