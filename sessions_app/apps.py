from django.apps import AppConfig
from django.db.models.signals import pre_migrate


class SessionsAppConfig(AppConfig):
    """The transcript: people, sessions, messages, and the keys that give access to them."""

    name = "sessions_app"
    verbose_name = "Transcript"

    def ready(self) -> None:
        from sessions_app.api.authentication import KeyCheckProvider
        from sessions_app.database import transactions
        from sessions_app.database.resumable_migrations import make_resumable
        from sessions_app.database.transactions import RoleProvider, TimeoutProvider
        from sessions_app.people import declared  # noqa: F401 (adds itself to the registry)

        transactions.register(RoleProvider(), TimeoutProvider(), KeyCheckProvider())
        pre_migrate.connect(make_resumable, sender=self)
