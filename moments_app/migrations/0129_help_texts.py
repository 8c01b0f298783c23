import django.contrib.postgres.fields
from django.db import migrations, models

from sessions_app.migrations._state_only import StateOnly


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0128_help_texts")]

    operations = [
        StateOnly(
            state_operations=[
                migrations.AlterField(
                    model_name="circuit",
                    name="is_probing",
                    field=models.BooleanField(
                        default=False,
                        help_text="Whether a job was chosen as the probe and has not called the engine yet.",
                    ),
                ),
                migrations.AlterField(
                    model_name="circuit",
                    name="probe",
                    field=models.BigIntegerField(
                        blank=True,
                        help_text="Primary key of the latest job that was chosen as the probe. A probe calls the "
                        "engine to check whether it works again.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="correction",
                    name="valid_until",
                    field=models.DateTimeField(
                        blank=True,
                        help_text="When the fact stopped being true. Blank if the correction did not end the fact.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="job",
                    name="task",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Name of the schedule or function that the job runs. Blank if the job runs neither.",
                        max_length=100,
                    ),
                ),
                migrations.AlterField(
                    model_name="retraction",
                    name="item_ids",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.UUIDField(),
                        blank=True,
                        help_text="Ids of the retracted facts and observations. A client or operator wrote these "
                        "items directly. Blank if turns were retracted.",
                        null=True,
                        size=None,
                    ),
                ),
            ],
        )
    ]
