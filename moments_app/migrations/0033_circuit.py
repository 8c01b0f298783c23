import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

WORKS = [("text", "Text"), ("embedding", "Embedding"), ("query", "Query")]
STATES = [("closed", "Closed"), ("open", "Open")]
ALONE = "Whose failures the answers to others have shown to be their own."


class Migration(migrations.Migration):
    dependencies = [
        ("moments_app", "0032_jobs_in_turn"),
    ]

    operations = [
        migrations.CreateModel(
            name="Circuit",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("engine", models.CharField(max_length=255)),
                ("work", models.CharField(choices=WORKS, max_length=16)),
                ("state", models.CharField(choices=STATES, default="closed", max_length=8)),
                (
                    "since",
                    models.DateTimeField(default=django.utils.timezone.now, help_text="When it was opened or closed."),
                ),
                (
                    "holds_all",
                    models.BooleanField(default=False, help_text="Whether everybody's jobs are held, or one person's."),
                ),
                ("reason", models.CharField(blank=True, help_text="The kind of the last error.", max_length=32)),
                ("error", models.TextField(blank=True, help_text="The last error.")),
                (
                    "failures",
                    models.PositiveIntegerField(default=0, help_text="In a row, with no answer in between."),
                ),
                (
                    "subject",
                    models.BigIntegerField(blank=True, help_text="Whom they are about, if about one alone.", null=True),
                ),
                ("lone_subject", models.BigIntegerField(blank=True, help_text=ALONE, null=True)),
                ("failed_job", models.BigIntegerField(blank=True, null=True)),
                ("last_failure_at", models.DateTimeField(blank=True, null=True)),
                ("next_probe_at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "probe",
                    models.BigIntegerField(blank=True, help_text="The job that was sent out last.", null=True),
                ),
                ("probe_subject", models.BigIntegerField(blank=True, null=True)),
                ("is_probing", models.BooleanField(default=False, help_text="The probe has not asked yet.")),
                ("closed_by", models.CharField(blank=True, max_length=255)),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=["engine", "work"], name="circuit_unique")],
            },
        ),
        migrations.AddField(
            model_name="job",
            name="circuit",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                help_text="Held until it closes.",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="jobs",
                to="moments_app.circuit",
            ),
        ),
    ]
