"""Move what corrections keep of changed facts, as they were before, into the history of these facts.

Each batch is a transaction of its own and can run again.
"""

import uuid
from datetime import datetime
from typing import Any

from django.db import connection, migrations, transaction
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps
from django.utils.dateparse import parse_datetime

AT_ONCE = 200
LABEL = "moments_app.statementchange"


def write(apps: StateApps, editor: BaseDatabaseSchemaEditor | None) -> None:
    """Go over all corrections, also those that retractions keep as data."""
    corrections = apps.get_model("moments_app", "Correction").objects
    kept = apps.get_model("moments_app", "RetractedItem").objects.filter(model="moments_app.correction")
    for rows, move in ((corrections, _of_correction), (kept, _of_kept)):
        after = 0
        while batch := list(rows.filter(pk__gt=after).order_by("pk")[:AT_ONCE]):
            with transaction.atomic():
                for row in batch:
                    move(apps, row)
            after = batch[-1].pk


def _of_correction(apps: StateApps, correction: Any) -> None:
    _record(apps, _rows(correction, correction.user_id, correction.changes))
    correction.save(update_fields=["changes"])


def _of_kept(apps: StateApps, item: Any) -> None:
    """Keep the history of facts that the same retraction keeps as data as such data, too."""
    correction = apps.get_model("moments_app", "Correction")(
        correction_id=item.data["correction_id"],
        kind=item.data["kind"],
        requested_by=item.data["requested_by"],
        created_at=_time(item.data["created_at"]),
        undone_at=_time(item.data["undone_at"]),
    )
    items = apps.get_model("moments_app", "RetractedItem").objects.filter(retraction=item.retraction_id)
    atoms = items.filter(model="moments_app.memoryatom", is_rewritten=False)
    gone = set(atoms.values_list("object_pk", flat=True))
    for row in _record(apps, _rows(correction, item.user_id, item.data["changes"])):
        if row["statement_id"] in gone:
            data = {"statement": row.pop("statement_id"), "user": row.pop("user_id")} | row
            whose = {"retraction_id": item.retraction_id, "user_id": item.user_id}
            items.create(**whose, model=LABEL, object_pk=_next_pk(), data=data)
    item.save(update_fields=["data"])


def _record(apps: StateApps, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add changes to the history of their statements; return those whose statement isn't there."""
    atoms = apps.get_model("moments_app", "MemoryAtom").objects
    there = set(atoms.filter(pk__in=[row["statement_id"] for row in rows]).values_list("pk", flat=True))
    table = apps.get_model("moments_app", "StatementChange").objects
    table.bulk_create([table.model(**row) for row in rows if row["statement_id"] in there])
    return [row for row in rows if row["statement_id"] not in there]


def _next_pk() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval(pg_get_serial_sequence('moments_app_statementchange', 'id'))")
        [pk] = cursor.fetchone()
    return int(pk)


def _rows(correction: Any, user: int, changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the changes of facts, and take what they keep out of the correction's."""
    before = {change["pk"]: was for change in changes if (was := change.pop("was", None)) is not None}
    for was in before.values():
        was.pop("absorbed_in_id", None)  # a correction doesn't change it
    common = {"user_id": user, "reason": f"correction:{correction.correction_id}", "actor": correction.requested_by}
    rows = [
        {"statement_id": pk, "action": correction.kind, "before": was, "created_at": correction.created_at}
        for pk, was in before.items()
    ]
    if correction.undone_at:
        rows += [
            {"statement_id": pk, "action": "undone", "before": {}, "created_at": correction.undone_at} for pk in before
        ]
    return [row | common | {"change_id": uuid.uuid4()} for row in rows]


def _time(text: str | None) -> datetime | None:
    return parse_datetime(text) if text else None


class Migration(migrations.Migration):
    atomic = False  # so that no row is held for longer than a moment

    dependencies = [("moments_app", "0115_history_of_statements")]

    operations = [migrations.RunPython(write, migrations.RunPython.noop, elidable=True)]
