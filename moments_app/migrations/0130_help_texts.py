import django.db.models.deletion
from django.db import migrations, models

from sessions_app.migrations._state_only import StateOnly


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0129_help_texts")]

    operations = [
        StateOnly(
            state_operations=[
                migrations.AlterField(
                    model_name="job",
                    name="circuit",
                    field=models.ForeignKey(
                        blank=True,
                        db_index=False,
                        help_text="The circuit that must close before the job can run. Blank if the job is not waiting "
                        "for a circuit.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="jobs",
                        to="moments_app.circuit",
                    ),
                ),
                migrations.AlterField(
                    model_name="job",
                    name="held_by",
                    field=models.CharField(
                        blank=True,
                        choices=[
                            ("backoff", "a retry after a failure"),
                            ("circuit", "an unavailable provider"),
                            ("budget", "the next day, because a daily limit is reached"),
                            ("step", "another job"),
                        ],
                        db_default="",
                        default="",
                        help_text="What the job is waiting for, such as a retry or an unavailable engine. Blank if the "
                        "job is not on hold.",
                        max_length=16,
                    ),
                ),
                migrations.AlterField(
                    model_name="job",
                    name="held_since",
                    field=models.DateTimeField(
                        blank=True,
                        help_text="When the job was put on hold. Blank if the job is not on hold.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="consolidated_at",
                    field=models.DateTimeField(
                        blank=True,
                        editable=False,
                        help_text="For a line: when a consolidation wrote it. For any other item: when a consolidation "
                        "first processed it.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="retraction",
                    name="waiting",
                    field=models.JSONField(
                        default=dict,
                        help_text="Parameters of the rebuild jobs that were unfinished when the retraction was made, "
                        "by process.",
                    ),
                ),
                migrations.AlterField(
                    model_name="storeditem",
                    name="text",
                    field=models.TextField(
                        blank=True,
                        help_text="The text that searches look in. If it is blank, searches don't find the item.",
                    ),
                ),
            ],
        )
    ]
