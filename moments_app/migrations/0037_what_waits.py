from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    atomic = False  # the indexes are built while work goes on

    dependencies = [
        ("moments_app", "0034_jobs_not_held"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="held_by",
            field=models.CharField(
                blank=True,
                choices=[
                    ("backoff", "a back-off"),
                    ("circuit", "a provider that fails"),
                    ("budget", "another day: a cap is reached"),
                    ("step", "another job"),
                ],
                db_default="",
                default="",
                help_text="What it waited for when it was put back last.",
                max_length=16,
            ),
        ),
        migrations.AddField(
            model_name="job",
            name="held_since",
            field=models.DateTimeField(blank=True, help_text="When it was put back first.", null=True),
        ),
        AddIndexConcurrently(
            "job",
            models.Index(
                fields=["status", "process"],
                include=["held_by", "circuit", "run_after", "held_since", "queued_at"],
                condition=Q(status__in=["queued", "processing", "failed"]),
                name="job_unfinished",
            ),
        ),
    ]
