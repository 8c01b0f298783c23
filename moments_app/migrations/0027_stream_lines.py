"""Which observations each line of a consolidated text carries, and which a consolidation was given."""

import django.db.models.deletion
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False

    dependencies = [("moments_app", "0025_chain_in_time")]

    operations = [
        migrations.AddField(
            model_name="streamversion",
            name="lines",
            field=models.JSONField(
                editable=False,
                help_text="For each line after: primary keys of the observations it carries; null: it was written by "
                "hand. Blank: it was not recorded yet.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="memoryatom",
            name="shown_in",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                help_text="The first consolidation that was given it, whether its text carries it or not.",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="shown",
                to="moments_app.streamversion",
            ),
        ),
        AddIndexConcurrently(
            model_name="memoryatom",
            index=models.Index(
                condition=models.Q(("shown_in__isnull", False)), fields=["shown_in"], name="atom_shown_in"
            ),
        ),
        AddIndexConcurrently(
            model_name="memoryatom",
            index=models.Index(
                condition=models.Q(
                    ("atom_type", "observation"),
                    ("is_pinned", False),
                    ("shown_in__isnull", True),
                    ("state", "active"),
                ),
                fields=["stream"],
                name="atom_fresh",
            ),
        ),
        AddIndexConcurrently(
            model_name="memoryatom",
            index=models.Index(
                condition=models.Q(("is_pinned", True), ("state", "active")), fields=["stream"], name="atom_pinned"
            ),
        ),
    ]
