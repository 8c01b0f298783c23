"""A `user_id` is unique within its application."""

from django.db import migrations, models

TABLE, UNIQUE = "sessions_app_userprofile", "user_profile_unique_in_application"


class Migration(migrations.Migration):
    atomic = False  # the index is built while the table is written to

    dependencies = [("sessions_app", "0016_applications")]

    operations = [
        migrations.RunSQL(f"ALTER TABLE {TABLE} VALIDATE CONSTRAINT user_profile_application", migrations.RunSQL.noop),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    [
                        f"DROP INDEX CONCURRENTLY IF EXISTS {UNIQUE}",  # of a build that was interrupted
                        f"CREATE UNIQUE INDEX CONCURRENTLY {UNIQUE} ON {TABLE} (application_id, user_id)",
                        f"ALTER TABLE {TABLE} ADD CONSTRAINT {UNIQUE} UNIQUE USING INDEX {UNIQUE}",
                    ],
                    f"ALTER TABLE {TABLE} DROP CONSTRAINT {UNIQUE}",
                ),
            ],
            state_operations=[
                migrations.AddConstraint(
                    "userprofile", models.UniqueConstraint(fields=("application", "user_id"), name=UNIQUE)
                ),
            ],
        ),
    ]
