"""The operator's pages, found where Django looks for them; in the platform's own site, as those of the transcript."""

from django.apps import apps

if apps.is_installed("memoryproject"):
    import moments_app.operator.admin  # noqa: F401 (registers the lists)
