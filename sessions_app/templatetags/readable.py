"""Filters of all templates: actors in words, JSON, and texts with invisible characters."""

import json
from typing import Any

from django import template
from django.core.serializers.json import DjangoJSONEncoder

from sessions_app.models.event import named_actor
from sessions_app.text.invisible_characters import with_unseen_written

register = template.Library()
register.filter("named_actor", named_actor)  # the name of an actor's key is an argument


@register.filter
def readable_json(value: Any) -> str:
    """Return the value as indented JSON, or a dash for None."""
    return "-" if value is None else json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False, indent=2)


@register.filter
def in_words(code: str) -> str:
    """Return a code such as `invalid_answer` as words."""
    return code.replace("_", " ").replace("-", " ")


@register.filter
def visible(value: Any) -> Any:
    """Return a text with its invisible characters written out. Return other values unchanged."""
    return with_unseen_written(value) if isinstance(value, str) else value
