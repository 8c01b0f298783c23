"""The admin pages of the transcript's own tables. `moments_app.operator.admin` shows sessions, turns and archives.

They belong to the platform's own site. In a host project (`hosted.py`), the admin site stays unchanged.
"""

from django.apps import apps

if apps.is_installed("memoryproject"):
    from sessions_app.admin import api_key, event, logins  # noqa: F401
