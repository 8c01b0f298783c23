"""The transcript's pages that need nothing of memory; `moments_app.operator.admin` shows sessions and turns.

They are pages of the platform's own site. A project that has only the apps keeps its admin as it is (`hosted.py`).
"""

from django.apps import apps

if apps.is_installed("memoryproject"):
    from sessions_app.admin import api_key, application, archive, daily_limit, event, logins  # noqa: F401
