"""The name of a shard is unique for an agent of its application."""

from django.contrib.postgres.operations import RemoveIndexConcurrently, ValidateConstraint
from django.db import migrations, models
from django.db.models import Q

TABLE = "moments_app_memorystream"
OF_PERSON = "stream_unique_of_person", "(user_id, agent_id, stream_type, session_id) NULLS NOT DISTINCT"
OF_SHARD = "shard_unique_in_application", "(application_id, agent_id, name)"


def unique(name: str, columns: str, condition: str) -> migrations.RunSQL:
    """Return an operation that builds a unique index while the table is written to."""
    drop = f"DROP INDEX CONCURRENTLY IF EXISTS {name}"  # first: of a build that was interrupted
    return migrations.RunSQL(
        [drop, f"CREATE UNIQUE INDEX CONCURRENTLY {name} ON {TABLE} {columns} WHERE {condition}"], drop
    )


class Migration(migrations.Migration):
    atomic = False  # the indexes are built while the table is written to

    dependencies = [("moments_app", "0042_applications")]

    operations = [
        migrations.RunSQL(f"ALTER TABLE {TABLE} VALIDATE CONSTRAINT stream_application", migrations.RunSQL.noop),
        ValidateConstraint("memorystream", "shard_has_application"),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                unique(*OF_PERSON, "user_id IS NOT NULL"),
                unique(*OF_SHARD, "stream_type = 'agent'"),
            ],
            state_operations=[
                migrations.AddConstraint(
                    "memorystream",
                    models.UniqueConstraint(
                        condition=Q(user__isnull=False),
                        fields=("user", "agent_id", "stream_type", "session"),
                        name=OF_PERSON[0],
                        nulls_distinct=False,
                    ),
                ),
                migrations.AddConstraint(
                    "memorystream",
                    models.UniqueConstraint(
                        condition=Q(stream_type="agent"), fields=("application", "agent_id", "name"), name=OF_SHARD[0]
                    ),
                ),
            ],
        ),
        migrations.RemoveConstraint("memorystream", "stream_unique_in_scope"),
        RemoveIndexConcurrently("memorystream", "stream_shards"),
    ]
