from django.apps import AppConfig


class OAuthConfig(AppConfig):
    """Assistants that ask operators for access by OAuth."""

    name = "memory_extras.oauth"
    label = "oauth"
    verbose_name = "OAuth"

    def ready(self) -> None:
        from memory_extras.oauth import declared  # noqa: F401 (adds itself to the registry)
        from memory_extras.oauth.tokens import Tokens
        from sessions_app.api.authentication import ISSUERS

        ISSUERS.append(Tokens())
