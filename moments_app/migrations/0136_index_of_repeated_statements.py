from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """An index to find whether a person's ended statement is true again."""

    atomic = False

    dependencies = [("moments_app", "0134_help_texts")]

    operations = [
        AddIndexConcurrently(
            "memoryatom",
            models.Index(
                fields=["user", "content_hash"],
                condition=Q(("state__in", ["active", "absorbed"])),
                name="atom_said_again",
            ),
        ),
    ]
