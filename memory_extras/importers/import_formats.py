"""Registers the readers of this extra."""

from memory_extras.importers import chatgpt, claude, honcho, mem0, openai, zep
from sessions_app.imports.source import register_format

for reader in (zep, mem0, honcho, openai, chatgpt, claude):
    register_format(reader.NAME, reader)
