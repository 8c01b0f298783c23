"""Lists and pages of the extra."""

from django.apps import apps

if apps.is_installed("memoryproject"):
    from memory_extras.lab.admin import pages, probe  # noqa: F401 (add themselves)
