from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules


class MomentsAppConfig(AppConfig):
    """The app of memory: moments, prompts, and the jobs that create them."""

    name = "moments_app"
    verbose_name = "Memory"

    def ready(self) -> None:
        """Import the modules that register receivers of signals, tables, processes and layers."""
        from moments_app.prompts import install_shipped_prompts
        from moments_app.provenance import declared  # noqa: F401 (adds itself to the registry)
        from moments_app.streams import add_atoms, edit  # noqa: F401 (receive signals)

        autodiscover_modules("declared", "processes", "layers")
        post_migrate.connect(install_shipped_prompts, sender=self)
