from django.db import migrations, models
from django.db.models import Q

NAME = "atom_external_id_unique_of_person"
DROP = f"DROP INDEX CONCURRENTLY IF EXISTS {NAME}"  # first: of a build that was interrupted
CREATE = (
    f"CREATE UNIQUE INDEX CONCURRENTLY {NAME} ON moments_app_memoryatom (stream_id, user_id, external_id)"
    " NULLS NOT DISTINCT WHERE external_id IS NOT NULL"
)


class Migration(migrations.Migration):
    """A client's own id of an item is unique in its stream and to its person."""

    atomic = False  # the index is built beside writes

    dependencies = [("moments_app", "0077_ids_of_items")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL([DROP, CREATE], DROP)],
            state_operations=[
                migrations.AddConstraint(
                    "memoryatom",
                    models.UniqueConstraint(
                        condition=Q(external_id__isnull=False),
                        fields=("stream", "user", "external_id"),
                        name=NAME,
                        nulls_distinct=False,
                    ),
                ),
            ],
        ),
    ]
