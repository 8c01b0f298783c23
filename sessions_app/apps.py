from django.apps import AppConfig


class SessionsAppConfig(AppConfig):
    """The transcript: people, sessions, messages, and the keys that give access to them."""

    name = "sessions_app"
    verbose_name = "Transcript"

    def ready(self) -> None:
        from sessions_app.api import schema  # noqa: F401 (registers itself)
        from sessions_app.people import declared  # noqa: F401 (adds itself to the registry)
