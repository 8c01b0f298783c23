"""Adds the lab's pages to the core's lists and to the sidebar."""

from django.apps import apps

if apps.is_installed("memoryproject"):
    # The sidebar lists their pages in this order.
    from memory_extras.lab.views import recall, playground, probe, trial  # noqa: F401, I001
