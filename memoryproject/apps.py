from django.apps import AppConfig
from django.db.models.signals import post_migrate


class MemoryProjectConfig(AppConfig):
    """The site itself: its schedules and its commands."""

    name = "memoryproject"

    def ready(self) -> None:
        from memoryproject.schedules import register_schedules

        post_migrate.connect(register_schedules, sender=self)
