"""What the lanes of a person's days are read by."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False  # the indexes are built while the tables are written to

    dependencies = [("moments_app", "0067_parts_of_calls")]

    operations = [
        AddIndexConcurrently(
            "summary",
            models.Index(
                fields=["user", "-created_at", "-id"], condition=Q(status="completed"), name="summary_user_newest"
            ),
        ),
        AddIndexConcurrently(
            "memoryatom",
            models.Index(
                fields=["user", "-ended_at", "-id"], condition=Q(ended_at__isnull=False), name="atom_user_ended"
            ),
        ),
    ]
