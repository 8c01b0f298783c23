import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

from sessions_app.migrations._state_only import StateOnly


class Migration(migrations.Migration):
    dependencies = [("lab", "0002_help_texts")]

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
                        help_text="Sequence numbers of the turns that contain the answer.",
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="probe",
                    name="expected",
                    field=models.TextField(
                        help_text="The expected answer. A run searches the context for these words.",
                        max_length=4000,
                        verbose_name="expected answer",
                    ),
                ),
                migrations.AlterField(
                    model_name="probe",
                    name="session",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="Session in which the question is asked. If blank, it is asked in the person's "
                        "latest session.",
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
                        help_text="Session that contains the turns with the answer.",
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
                        help_text="Whether the context contained enough words of the answer, and any turns named as "
                        "evidence.",
                        verbose_name="met",
                    ),
                ),
                migrations.AlterField(
                    model_name="proberesult",
                    name="refs",
                    field=models.JSONField(default=dict, help_text="Addresses of the items in the context, by layer."),
                ),
                migrations.AlterField(
                    model_name="proberesult",
                    name="setup",
                    field=models.JSONField(
                        default=dict, help_text="Prompt versions that were active, and the relevant settings."
                    ),
                ),
                migrations.AlterField(
                    model_name="proberesult",
                    name="tokens",
                    field=models.PositiveIntegerField(
                        default=0, help_text="Estimated number of tokens in the context."
                    ),
                ),
                migrations.AlterField(
                    model_name="prompttrial",
                    name="size",
                    field=models.PositiveIntegerField(help_text="Number of sessions or streams in the sample."),
                ),
            ]
        )
    ]
