from collections.abc import Iterable
from typing import Any

from django.core.management.base import BaseCommand
from pydantic import Secret, SecretStr
from pydantic.fields import FieldInfo

from memoryproject import extras
from memoryproject.conf import BASE_DIR, variables, variables_of


class Command(BaseCommand):
    help = "Print the tables of all settings for docs/settings.md: the core, then each extra."

    def handle(self, *args: Any, **options: Any) -> str:
        tables = [_table(variables())]
        for extra in extras.available():
            if added := list(variables_of(extra)):
                tables.append(f"## Extra: {extra}\n\n{_table(added)}")
        return "\n\n".join(tables)


def _table(found: Iterable[tuple[str, tuple[str, ...], FieldInfo]]) -> str:
    rows = [f"| `{name}` | {_default(field)} | {field.description} |" for name, _, field in found]
    return "\n".join(["| variable | default | meaning |", "| --- | --- | --- |", *rows])


def _default(field: FieldInfo) -> str:
    value = field.default
    if isinstance(value, Secret | SecretStr) or value in ("", [], None):
        return "–"
    if isinstance(value, list):
        value = ",".join(value)
    return f"`{str(value).replace(str(BASE_DIR), '.')}`" if not isinstance(value, bool) else f"`{str(value).lower()}`"
