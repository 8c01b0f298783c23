"""Settings that this extra adds to Django's settings."""

from typing import Any

from memoryproject.admin_menu import Entry, add_entry


def extend(settings: dict[str, Any]) -> None:
    """Add the list of probes to the sidebar."""
    add_entry("lab.probe", Entry("probe", "probes", "quiz"), after="moments_app.promptresource")
