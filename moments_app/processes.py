"""The modules that define processes. Each app's module `processes` is imported at startup."""

from moments_app import summaries
from moments_app.jobs import scheduled
from moments_app.moments import build, rebuild
from moments_app.recall import embed, index_words
from moments_app.sessions import digest, settle
from moments_app.streams import consolidate, form

__all__ = [
    "build",
    "consolidate",
    "digest",
    "embed",
    "form",
    "index_words",
    "rebuild",
    "scheduled",
    "settle",
    "summaries",
]
