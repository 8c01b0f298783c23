"""Displays texts with invisible characters in templates."""

from typing import Any

from django import template

from sessions_app.text.invisible_characters import with_unseen_written

register = template.Library()


@register.filter
def visible(value: Any) -> Any:
    """Return a text with its invisible characters written out. Return other values unchanged."""
    return with_unseen_written(value) if isinstance(value, str) else value
