from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """Indexes of the lines of texts, their parts, and the items that consolidations received."""

    atomic = False

    dependencies = [("moments_app", "0119_lines_of_texts")]

    operations = [
        AddIndexConcurrently(
            "memoryatom",
            models.Index(
                fields=["stream", "-consolidated_at"],
                condition=Q(("consolidated_at__isnull", False)),
                name="atom_consolidated",
            ),
        ),
        AddIndexConcurrently(
            "memoryatom",
            models.Index(
                fields=["stream"],
                condition=Q(
                    ("atom_type", "observation"),
                    ("consolidated_at__isnull", True),
                    ("is_candidate", False),
                    ("is_pinned", False),
                    ("state", "active"),
                ),
                name="atom_fresh",
            ),
        ),
        AddIndexConcurrently(
            "memoryatom",
            models.Index(fields=["stream", "position"], condition=Q(("state", "line")), name="atom_lines"),
        ),
        AddIndexConcurrently(
            "memoryatom",
            models.Index(fields=["merged_into"], condition=Q(("merged_into__isnull", False)), name="atom_merged_into"),
        ),
    ]
