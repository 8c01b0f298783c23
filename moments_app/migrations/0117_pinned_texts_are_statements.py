"""Make the pinned texts of streams pinned statements, from which they are derived from now on.

Each batch is a transaction of its own and can run again.
"""

from typing import Any

from django.db import migrations, transaction
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

from moments_app.models.atom import ABOUT, content_hash
from sessions_app import lexemes

AT_ONCE = 500


def write(apps: StateApps, editor: BaseDatabaseSchemaEditor | None) -> None:
    """Go over all streams that have a pinned text."""
    streams = apps.get_model("moments_app", "MemoryStream").objects.exclude(pinned_content="").order_by("pk")
    after = 0
    while batch := list(streams.filter(pk__gt=after)[:AT_ONCE]):
        with transaction.atomic():
            for stream in batch:
                _write(apps.get_model("moments_app", "MemoryAtom").objects, stream)
        after = batch[-1].pk


def _write(atoms: Any, stream: Any) -> None:
    digest = content_hash(stream.pinned_content)
    pinned = {"is_pinned": True, "subject": "", "attribute": "text", "value": "", "kind": "other"}
    same = atoms.filter(stream=stream, user=stream.user_id, content_hash=digest, state="active")
    if same.exclude(attribute="text").update(content=stream.pinned_content, **pinned) or same.exists():
        return
    row = atoms.model(
        stream=stream,
        user_id=stream.user_id,
        atom_type="fact",
        about_kind=ABOUT[stream.stream_type],
        content=stream.pinned_content,
        content_hash=digest,
        formed_at=stream.last_updated_at,
        **pinned,
    )
    row.__dict__["search_vector"] = lexemes.vector(row.content)  # the model of that time can't compute it
    row.save()


class Migration(migrations.Migration):
    atomic = False  # so that no row is held for longer than a moment

    dependencies = [("moments_app", "0116_corrections_in_history")]

    operations = [migrations.RunPython(write, migrations.RunPython.noop, elidable=True)]
