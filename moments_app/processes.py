"""The modules of this app that define processes; an app's module of this name is imported when the site starts.

An app of your own adds a process in the same way: by a module `processes`.
"""

from moments_app.moments import build, rebuild
from moments_app.recall import count_words, embed, embed_all, index_archived
from moments_app.sessions import digest, settle
from moments_app.streams import consolidate, form
from moments_app.summaries import roll

__all__ = [
    "build",
    "consolidate",
    "count_words",
    "digest",
    "embed",
    "embed_all",
    "form",
    "index_archived",
    "rebuild",
    "roll",
    "settle",
]
