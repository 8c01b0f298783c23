"""What was said, for templates."""

from typing import Any

from django import template

from sessions_app.unseen import with_unseen_written

register = template.Library()


@register.filter
def visible(value: Any) -> Any:
    """Return a text in which characters that nobody sees are written out; anything else as it is."""
    return with_unseen_written(value) if isinstance(value, str) else value
