"""The lines of the profiles that there are; what they were made of isn't known."""

import re
from collections.abc import Iterator
from typing import Any

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

AT_ONCE = 500
ITEM = "- "
SENTENCE_END = re.compile(r"(?<=[.!?。！？])(\s+)")


def add_lines(apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    """Give each profile with a text its lines."""
    lines = apps.get_model("moments_app", "ProfileLine")
    profiles = apps.get_model("sessions_app", "UserProfile").objects.exclude(summary="").order_by("pk")
    batch: list[Any] = []
    for pk, summary in profiles.values_list("pk", "summary").iterator(AT_ONCE):
        parts = enumerate(_parts(summary))
        batch += [
            lines(user_id=pk, position=n, heading=head, joint=joint, text=text) for n, (head, joint, text) in parts
        ]
        if len(batch) >= AT_ONCE:
            lines.objects.bulk_create(batch)
            batch = []
    lines.objects.bulk_create(batch)


def _parts(summary: str) -> Iterator[tuple[str, str, str]]:
    """Yield the heading of each line, what parts it from the one before, and its text."""
    rows = [row.rstrip() for row in summary.split("\n") if row.strip()]
    heading = ""
    for row, following in zip(rows, [*rows[1:], ""], strict=True):
        if row.startswith(ITEM):
            yield heading, "\n", row
        elif row.endswith(":") and following.startswith(ITEM):
            heading = row
        else:
            heading = ""
            parts = SENTENCE_END.split(row)
            joints = ["\n", *parts[1::2]]
            yield from (("", joint, text) for joint, text in zip(joints, parts[::2], strict=True) if text)


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0055_profile_lines")]

    operations = [migrations.RunPython(add_lines, migrations.RunPython.noop, elidable=True)]
