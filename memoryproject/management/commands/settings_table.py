from typing import Any

from django.core.management.base import BaseCommand
from pydantic import Secret, SecretStr
from pydantic.fields import FieldInfo

from memoryproject.conf import BASE_DIR, variables
from memoryproject.settings import CONF


class Command(BaseCommand):
    help = "Print the table of all settings for docs/settings.md."

    def handle(self, *args: Any, **options: Any) -> str:
        rows = [f"| `{name}` | {_default(field)} | {field.description} |" for name, _, field in variables(type(CONF))]
        return "\n".join(["| variable | default | meaning |", "| --- | --- | --- |", *rows])


def _default(field: FieldInfo) -> str:
    value = field.default
    if isinstance(value, Secret | SecretStr) or value in ("", []):
        return "–"
    if isinstance(value, list):
        value = ",".join(value)
    return f"`{str(value).replace(str(BASE_DIR), '.')}`" if not isinstance(value, bool) else f"`{str(value).lower()}`"
