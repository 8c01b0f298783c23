"""Adds the lab's pages to lists of the core and to the sidebar."""

from django.apps import apps

if apps.is_installed("memoryproject"):
    # In this order, their pages are in the sidebar.
    from memory_extras.lab.views import recall, playground, probe, trial  # noqa: F401, I001
