"""Imports the modules of this app that define processes. Each app's module with this name is imported at startup.

Your own app adds a process in the same way, with a module `processes`.
"""

from moments_app import summaries
from moments_app.moments import build, rebuild
from moments_app.recall import count_words, embed, embed_all, index_words
from moments_app.sessions import digest, settle
from moments_app.streams import consolidate, form

__all__ = [
    "build",
    "consolidate",
    "count_words",
    "digest",
    "embed",
    "embed_all",
    "form",
    "index_words",
    "rebuild",
    "settle",
    "summaries",
]
