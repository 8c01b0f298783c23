"""JSON in templates, to be read by people."""

import json
from typing import Any

from django import template
from django.core.serializers.json import DjangoJSONEncoder

register = template.Library()


@register.filter
def readable_json(value: Any) -> str:
    """The value as indented JSON; a dash where there is none."""
    return "-" if value is None else json.dumps(value, cls=DjangoJSONEncoder, ensure_ascii=False, indent=2)
