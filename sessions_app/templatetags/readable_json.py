"""Readable JSON for templates."""

import json
from typing import Any

from django import template
from django.core.serializers.json import DjangoJSONEncoder

register = template.Library()


@register.filter
def readable_json(value: Any) -> str:
    """Return the value as indented JSON, or a dash for None."""
    return "-" if value is None else json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False, indent=2)
