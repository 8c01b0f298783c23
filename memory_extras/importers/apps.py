from django.apps import AppConfig


class ImportersConfig(AppConfig):
    """Imports exports of ChatGPT and Claude, OpenAI chat messages, and API responses of Zep, mem0 and Honcho."""

    name = "memory_extras.importers"
    label = "importers"
