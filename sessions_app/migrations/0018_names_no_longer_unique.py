"""Two applications may use the same `user_id`; operators find people by the beginning of one."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # the index is built while the table is written to

    dependencies = [("sessions_app", "0017_names_in_applications")]

    operations = [
        AddIndexConcurrently(
            "userprofile",
            models.Index(fields=["user_id"], name="user_profile_begins", opclasses=["varchar_pattern_ops"]),
        ),
        migrations.AlterField(
            "userprofile",
            "user_id",
            models.CharField(help_text="The application's own id of this person.", max_length=255),
        ),
    ]
