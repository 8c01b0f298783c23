"""Template filters for actors, JSON, and texts with invisible characters."""

import json
from typing import Any

from django import template
from django.core.serializers.json import DjangoJSONEncoder

from sessions_app.models.event import named_actor
from sessions_app.text.invisible_characters import with_invisible_shown

register = template.Library()
register.filter("named_actor", named_actor)  # name of the key, if the actor is an API key


@register.filter
def readable_json(value: Any) -> str:
    return "-" if value is None else json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False, indent=2)


@register.filter
def in_words(code: str) -> str:
    """Return a code as words, such as "invalid answer" for `invalid_answer`."""
    return code.replace("_", " ").replace("-", " ")


@register.filter
def visible(value: Any) -> Any:
    """Make the invisible characters in a text visible. Return other values unchanged."""
    return with_invisible_shown(value) if isinstance(value, str) else value
