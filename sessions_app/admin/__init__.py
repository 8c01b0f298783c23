"""Admin pages of the transcript's tables. Sessions, turns and archives are in `moments_app.operator.admin`.

The pages are registered only with the platform's own admin site. A host project's admin site (`hosted.py`) stays
unchanged.
"""

from django.apps import apps

if apps.is_installed("memoryproject"):
    from sessions_app.admin import api_key, event, logins  # noqa: F401
