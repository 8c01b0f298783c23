from datetime import timedelta

from django.apps import AppConfig
from django.core.checks import Tags, register


class OAuthConfig(AppConfig):
    """Assistants that request access by OAuth."""

    name = "memory_extras.oauth"
    label = "oauth"
    verbose_name = "OAuth"

    def ready(self) -> None:
        from memory_extras.oauth.checks import known_application
        from memory_extras.oauth.conf import CODE_SECONDS
        from memory_extras.oauth.models import Assistant, Code
        from memory_extras.oauth.tokens import Tokens
        from memoryproject.database.clocks import OF_EXTRAS
        from sessions_app.api.authentication import ISSUERS
        from sessions_app.clock import TimeColumn

        register(known_application, Tags.database)
        ISSUERS.append(Tokens())
        OF_EXTRAS.extend(
            [TimeColumn(Assistant, "created"), TimeColumn(Code, "expires", timedelta(seconds=CODE_SECONDS))]
        )
