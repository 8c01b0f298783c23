import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

from sessions_app.migrations._state_only import StateOnly


class Migration(migrations.Migration):
    dependencies = [
        ("lab", "0001_initial"),
    ]

    operations = [
        StateOnly(
            state_operations=[
                migrations.AlterField(
                    model_name="probe",
                    name="evidence_sequences",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        blank=True,
                        default=list,
                        help_text="Sequences of the turns that say the answer.",
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="probe",
                    name="expected",
                    field=models.TextField(
                        help_text="Answer whose words are searched for in the context.",
                        max_length=4000,
                        verbose_name="expected answer",
                    ),
                ),
                migrations.AlterField(
                    model_name="probe",
                    name="question",
                    field=models.TextField(help_text="Question to ask.", max_length=4000),
                ),
                migrations.AlterField(
                    model_name="probe",
                    name="session",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="Session in which the question is asked. Blank: the person's latest session.",
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
                        help_text="Session of the evidence.",
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
                        help_text="Whether the context had enough of the words, and the evidence if any is named.",
                        verbose_name="met",
                    ),
                ),
                migrations.AlterField(
                    model_name="proberesult",
                    name="problem",
                    field=models.CharField(blank=True, help_text="Why no context could be built.", max_length=255),
                ),
                migrations.AlterField(
                    model_name="proberesult",
                    name="run_id",
                    field=models.UUIDField(help_text="Id of the run."),
                ),
                migrations.AlterField(
                    model_name="proberesult",
                    name="setup",
                    field=models.JSONField(default=dict, help_text="Active prompt versions and relevant settings."),
                ),
                migrations.AlterField(
                    model_name="proberesult",
                    name="tokens",
                    field=models.PositiveIntegerField(default=0, help_text="Estimated tokens of the context."),
                ),
                migrations.AlterField(
                    model_name="prompttrial",
                    name="differing",
                    field=models.PositiveIntegerField(default=0, help_text="Number of trials with different results."),
                ),
                migrations.AlterField(
                    model_name="prompttrial",
                    name="size",
                    field=models.PositiveIntegerField(help_text="Chosen sessions or streams."),
                ),
                migrations.AlterField(
                    model_name="prompttrial",
                    name="tried",
                    field=models.PositiveIntegerField(default=0, help_text="Number of completed trials."),
                ),
                migrations.AlterField(
                    model_name="trialside",
                    name="failed",
                    field=models.PositiveIntegerField(default=0, help_text="Number of failed trials."),
                ),
            ]
        )
    ]
