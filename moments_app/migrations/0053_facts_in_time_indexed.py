"""The indexes of facts in time, built while work goes on."""

from django.contrib.postgres.operations import AddConstraintNotValid, AddIndexConcurrently, ValidateConstraint
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False  # the indexes are built while work goes on

    dependencies = [("moments_app", "0052_facts_in_time")]

    operations = [
        AddIndexConcurrently(
            "memoryatom",
            models.Index(
                fields=["user", "attribute", "subject", "formed_at"], condition=~Q(attribute=""), name="atom_timeline"
            ),
        ),
        AddIndexConcurrently(
            "memoryatom",
            models.Index(fields=["user", "-formed_at", "-id"], condition=Q(state="ended"), name="atom_ended"),
        ),
        AddIndexConcurrently(
            "memoryatom",
            models.Index(fields=["replaced_by"], condition=Q(replaced_by__isnull=False), name="atom_replaced_by"),
        ),
        AddConstraintNotValid(
            "memoryatom",
            models.CheckConstraint(
                condition=~Q(state="ended") | Q(valid_until__isnull=False, ended_at__isnull=False),
                name="atom_ended_says_when",
            ),
        ),
        ValidateConstraint("memoryatom", "atom_ended_says_when"),
    ]
