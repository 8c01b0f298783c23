"""Plants scripts in every text in the database, like hostile messages, names and tags.

The same script is appended to all texts, so references by text stay valid.
"""

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.contrib.postgres.fields import ArrayField
from django.db import DatabaseError, models, transaction

SCRIPT = '"><script>window.planted=1</script>'
PLANTED = f"'--></textarea></title></pre>{SCRIPT}<img src=//planted.example/x onerror=window.planted=1>"

# Django's own tables, texts for machines only, and values from a fixed list.
NOT_TEXT = {
    "contenttypes.ContentType": {"app_label", "model"},
    "auth.Permission": {"codename"},
    "auth.User": {"password"},
    "sessions.Session": {"session_data"},
    "django_q.OrmQ": {"payload"},
    "moments_app.RetractedItem": {"model"},
    "sessions_app.UserProfile": {"timezone"},
}


def plant() -> set[str]:
    """Add a script to each text, list of texts and JSON of every row.

    Returns:
        The labels of the fields that now have one.
    """
    planted: set[str] = set()
    for model in apps.get_models():
        fields = list(_fields(model))
        for row in model._base_manager.all() if fields else ():
            planted |= {f"{model._meta.label}.{field.name}" for field in fields if _planted_in(row, field)}
    return planted


def _fields(model: type[models.Model]) -> Iterator[Any]:
    left_alone = NOT_TEXT.get(model._meta.label, set())
    for field in model._meta.concrete_fields:
        kind = field.base_field if isinstance(field, ArrayField) else field
        is_text = isinstance(kind, (models.CharField, models.TextField, models.JSONField))
        if is_text and not field.choices and not field.primary_key and field.name not in left_alone:
            yield field


def _planted_in(row: models.Model, field: Any) -> bool:
    """Return whether the database accepted it. A constraint may reject it, or the field may be too short."""
    before = getattr(row, field.attname)
    after = with_script(before, field.max_length)
    if after == before:
        return False
    try:
        with transaction.atomic():
            type(row)._base_manager.filter(pk=row.pk).update(**{field.attname: after})
    except DatabaseError:
        return False
    return True


def with_script(value: Any, room: int | None = None) -> Any:
    """Return the value with a script in each of its texts. In a URL, it goes before the part after a session's id."""
    if isinstance(value, str):
        script = next((text for text in (PLANTED, SCRIPT) if room is None or len(value) + len(text) <= room), "")
        name, turns, rest = value.rpartition("/messages/")
        return f"{name}{script}{turns}{rest}" if turns else value + script
    if isinstance(value, list):
        return [with_script(item) for item in value] or [PLANTED]
    if isinstance(value, dict):
        return {name: with_script(item) for name, item in value.items()} or {PLANTED: PLANTED}
    return value
