from django.apps import AppConfig


class ImportersConfig(AppConfig):
    """Imports exports of ChatGPT and Claude, OpenAI chat messages, and API responses of Zep, mem0 and Honcho."""

    name = "memory_extras.importers"
    label = "importers"

    def ready(self) -> None:
        from memory_extras.importers import chatgpt, claude, honcho, mem0, openai, zep
        from sessions_app.imports.source import register_format

        for reader in (zep, mem0, honcho, openai, chatgpt, claude):
            register_format(reader.NAME, reader)
