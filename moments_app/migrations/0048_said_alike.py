"""What groups of candidates are read by."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False  # the indexes are built while the table is written to

    dependencies = [("moments_app", "0047_shared_by_rule")]

    operations = [
        AddIndexConcurrently(
            "memoryatom", models.Index(fields=["alike"], condition=Q(alike__isnull=False), name="atom_alike")
        ),
        AddIndexConcurrently(
            "memoryatom",
            models.Index(
                fields=["stream", "id"],
                condition=Q(is_candidate=True, state="active", alike__isnull=True),
                name="atom_to_group",
            ),
        ),
    ]
