import django.contrib.postgres.fields
import django.utils.timezone
from django.db import migrations, models

from sessions_app.migrations._state_only import StateOnly


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0133_vectors_of_items")]

    operations = [
        StateOnly(
            state_operations=[
                migrations.AlterField(
                    model_name="circuit",
                    name="failing",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        blank=True,
                        db_default=[],
                        default=list,
                        help_text="Primary keys of people whose calls failed after the engine's last successful call.",
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="retraction",
                    name="waiting",
                    field=models.JSONField(
                        default=dict,
                        help_text="Rebuild jobs that had not finished at the time of the retraction: their parameters, "
                        "grouped by process.",
                    ),
                ),
                migrations.AlterField(
                    model_name="servedline",
                    name="served_on",
                    field=models.DateField(
                        db_index=True,
                        default=django.utils.timezone.localdate,
                        help_text="Date on which the line was last served. The date is updated only after 30 days.",
                    ),
                ),
            ],
        )
    ]
