import django.db.models.deletion
from django.db import migrations, models

from sessions_app.migrations._state_only import StateOnly


class Migration(migrations.Migration):
    dependencies = [("lab", "0003_help_texts")]

    operations = [
        StateOnly(
            state_operations=[
                migrations.AlterField(
                    model_name="probe",
                    name="expected",
                    field=models.TextField(
                        help_text="The answer that the context should contain. A run searches the context for "
                        "the words of the answer.",
                        max_length=4000,
                        verbose_name="expected answer",
                    ),
                ),
                migrations.AlterField(
                    model_name="probe",
                    name="question",
                    field=models.TextField(max_length=4000),
                ),
                migrations.AlterField(
                    model_name="probe",
                    name="session",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="The session in which the question is asked. If blank, the question is asked "
                        "in the person's latest session.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="probes",
                        to="sessions_app.session",
                    ),
                ),
                migrations.AlterField(
                    model_name="probe",
                    name="source_session",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="The session whose turns contain the answer.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.session",
                    ),
                ),
                migrations.AlterField(
                    model_name="proberesult",
                    name="is_met",
                    field=models.BooleanField(
                        help_text="True if the context contained at least half of the answer's words, and at "
                        "least one of the turns that the probe names as evidence. A probe may name no turns.",
                        verbose_name="met",
                    ),
                ),
                migrations.AlterField(
                    model_name="proberesult",
                    name="problem",
                    field=models.CharField(
                        blank=True,
                        help_text="Why no context could be built. Blank if a context was built.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="proberesult",
                    name="refs",
                    field=models.JSONField(
                        default=dict, help_text="Addresses of the items in the context, grouped by layer."
                    ),
                ),
                migrations.AlterField(
                    model_name="proberesult",
                    name="run_id",
                    field=models.UUIDField(help_text="Id of the run. All results of a run have the same id."),
                ),
                migrations.AlterField(
                    model_name="proberesult",
                    name="setup",
                    field=models.JSONField(
                        default=dict, help_text="The prompt versions and settings with which the context was built."
                    ),
                ),
                migrations.AlterField(
                    model_name="prompttrial",
                    name="differing",
                    field=models.PositiveIntegerField(
                        default=0,
                        help_text="Number of sessions or streams for which the two versions had different results.",
                    ),
                ),
                migrations.AlterField(
                    model_name="prompttrial",
                    name="tried",
                    field=models.PositiveIntegerField(
                        default=0, help_text="Number of sessions or streams on which the version was tried."
                    ),
                ),
                migrations.AlterField(
                    model_name="trialside",
                    name="failed",
                    field=models.PositiveIntegerField(
                        default=0, help_text="Number of sessions or streams for which the version failed."
                    ),
                ),
            ],
        ),
    ]
