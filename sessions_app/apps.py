from django.apps import AppConfig


class SessionsAppConfig(AppConfig):
    """What was said: people, sessions, messages and the keys that may reach them."""

    name = "sessions_app"
    verbose_name = "Transcript"
