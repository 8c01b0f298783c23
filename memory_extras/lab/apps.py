from django.apps import AppConfig, apps


class LabConfig(AppConfig):
    """Probes, prompt trials, and pages to test memory."""

    name = "memory_extras.lab"
    label = "lab"
    verbose_name = "Lab"

    def ready(self) -> None:
        if not apps.is_installed("memoryproject"):  # a host project doesn't have these pages
            return
        from memory_extras.lab.models import ProbeResult
        from memoryproject.database.clocks import EXTRA_COLUMNS
        from sessions_app.clock import TimeColumn

        EXTRA_COLUMNS.append(TimeColumn(ProbeResult, "created_at"))
