from django.db import migrations, models
from django.db.models import Q

OF_ITEM, OF_ENTITY = "atom_external_id_unique_of_person", "entity_external_id_unique_of_person"


def unique(name: str, columns: str) -> migrations.RunSQL:
    """Return an operation that builds a unique index while the table is written to."""
    drop = f"DROP INDEX CONCURRENTLY IF EXISTS {name}"  # first: of a build that was interrupted
    return migrations.RunSQL(
        [drop, f"CREATE UNIQUE INDEX CONCURRENTLY {name} ON {columns} WHERE external_id IS NOT NULL"], drop
    )


class Migration(migrations.Migration):
    """A client's own id is unique: of an item in its stream and to its person, of a task to its person."""

    atomic = False  # the indexes are built beside writes

    dependencies = [("moments_app", "0077_ids_of_items")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                unique(OF_ITEM, "moments_app_memoryatom (stream_id, user_id, external_id) NULLS NOT DISTINCT"),
                unique(OF_ENTITY, "moments_app_entity (user_id, external_id)"),
            ],
            state_operations=[
                migrations.AddConstraint(
                    "memoryatom",
                    models.UniqueConstraint(
                        condition=Q(external_id__isnull=False),
                        fields=("stream", "user", "external_id"),
                        name=OF_ITEM,
                        nulls_distinct=False,
                    ),
                ),
                migrations.AddConstraint(
                    "entity",
                    models.UniqueConstraint(
                        condition=Q(external_id__isnull=False), fields=("user", "external_id"), name=OF_ENTITY
                    ),
                ),
            ],
        ),
    ]
