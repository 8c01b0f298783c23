"""The lab's pages, which stand beside lists of the core."""

from django.apps import apps

if apps.is_installed("memoryproject"):
    import memory_extras.lab.pages  # noqa: F401 (adds the pages)
