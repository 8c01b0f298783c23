"""Which version of a prompt was in force before, so that going back to it is one press, and since when one is."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0019_operation")]

    operations = [
        migrations.AddField(
            model_name="promptresource",
            name="active_since",
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name="promptresource",
            name="previous_version",
            field=models.ForeignKey(
                blank=True,
                editable=False,
                help_text="In force before the active one.",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="moments_app.promptversion",
            ),
        ),
    ]
