from django.apps import AppConfig


class LabConfig(AppConfig):
    """Pages to try memory out."""

    name = "memory_extras.lab"
    label = "lab"
