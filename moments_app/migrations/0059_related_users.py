"""The people whom an item is about: a column that rewrites no table, an index that is built while work goes on."""

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.operations import (
    AddConstraintNotValid,
    AddIndexConcurrently,
    ValidateConstraint,
)
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False  # the index is built while work goes on

    dependencies = [("moments_app", "0058_extraction_model")]

    operations = [
        migrations.AddField(
            "memoryatom",
            "related_users",
            ArrayField(
                base_field=models.CharField(max_length=255),
                blank=True,
                db_default=[],
                default=list,
                help_text="user_ids of the people it is about, beside its own. To be named lets nobody see it.",
                size=None,
            ),
        ),
        AddConstraintNotValid(
            "memoryatom",
            models.CheckConstraint(
                condition=Q(related_users=[]) | Q(user__isnull=False), name="atom_shared_names_nobody"
            ),
        ),
        ValidateConstraint("memoryatom", "atom_shared_names_nobody"),
        AddIndexConcurrently(
            "memoryatom",
            GinIndex(fields=["related_users"], condition=~Q(related_users=[]), name="atom_related"),
        ),
    ]
