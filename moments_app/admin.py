"""Register the operator's pages where Django looks for them, next to the transcript's pages."""

from django.apps import apps

if apps.is_installed("memoryproject"):
    import moments_app.operator.admin  # noqa: F401 (registers the lists)
