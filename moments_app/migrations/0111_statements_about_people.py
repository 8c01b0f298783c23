from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """An index of the statements about a known person, in the order in which a profile is derived."""

    atomic = False

    dependencies = [("moments_app", "0110_known_people")]

    operations = [
        AddIndexConcurrently(
            "memoryatom",
            models.Index(
                fields=["about", "-is_pinned", "-worth", "-formed_at", "-id"],
                condition=models.Q(("about__isnull", False)),
                name="atom_about",
            ),
        ),
    ]
