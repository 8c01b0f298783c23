"""Copy tasks, goals and problems to the table of statements. Each batch is a separate transaction and can run again."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import connection, migrations, models, transaction
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps
from django.db.models.functions import Greatest

from moments_app.migrations._entities import COPY, ensure_lists

AT_ONCE = 500


def copy(apps: StateApps, editor: BaseDatabaseSchemaEditor | None) -> None:
    """Go over all rows."""
    entities = apps.get_model("moments_app", "Entity").objects.order_by("pk")
    streams = apps.get_model("moments_app", "MemoryStream").objects
    after = 0
    while batch := list(entities.filter(pk__gt=after).values_list("pk", "user_id")[:AT_ONCE]):
        with transaction.atomic(), connection.cursor() as cursor:
            ensure_lists(streams, sorted({user for _, user in batch}))
            cursor.execute(COPY, [[pk for pk, _ in batch]])
        after = batch[-1][0]


class Migration(migrations.Migration):
    atomic = False  # so that no row is locked for long

    dependencies = [("moments_app", "0137_due_times_of_statements")]

    operations = [
        migrations.RunPython(copy, migrations.RunPython.noop, elidable=True),
        AddIndexConcurrently(
            "memoryatom",
            models.Index(
                models.F("user"),
                Greatest("formed_at", "ended_at").desc(),
                models.F("id").desc(),
                condition=models.Q(("is_candidate", False), ("kind__in", ("task", "goal", "problem"))),
                name="atom_entities",
            ),
        ),
    ]
