"""Failures by their cause, and what was said in calls that failed."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

from sessions_app.limited_operators import APPLICATIONS, let_operators, of_person, seen
from sessions_app.row_security import protect


class Migration(migrations.Migration):
    dependencies = [
        ("moments_app", "0061_kept_contexts"),
        ("sessions_app", "0022_speakers"),
    ]

    operations = [
        migrations.CreateModel(
            name="FailureGroup",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "process",
                    models.CharField(help_text="What failed: a process, or what a query was for.", max_length=32),
                ),
                ("engine", models.CharField(blank=True, max_length=255)),
                ("kind", models.CharField(max_length=32)),
                ("place", models.CharField(blank=True, help_text="Of a defect or a setting.", max_length=255)),
                ("error", models.TextField(blank=True, help_text="The last one.")),
                ("count", models.PositiveIntegerField(default=0)),
                ("first_seen_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("last_seen_at", models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                ("muted_at", models.DateTimeField(blank=True, null=True)),
                ("muted_by", models.CharField(blank=True, max_length=255)),
                (
                    "application",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.application",
                    ),
                ),
            ],
            options={
                "verbose_name": "failure",
            },
        ),
        migrations.CreateModel(
            name="FailureHour",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("hour", models.DateTimeField()),
                ("count", models.PositiveIntegerField()),
                (
                    "failure",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="hours",
                        to="moments_app.failuregroup",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="KeptExchange",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("sealed", models.BinaryField()),
                ("created_at", models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                (
                    "call",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="exchange",
                        to="moments_app.enginecall",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="sessions_app.userprofile"
                    ),
                ),
            ],
        ),
        migrations.AddField(
            model_name="enginecall",
            name="failure",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="calls",
                to="moments_app.failuregroup",
            ),
        ),
        migrations.AddField(
            model_name="job",
            name="failure",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                help_text="By which its last attempt came to nothing.",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="jobs",
                to="moments_app.failuregroup",
            ),
        ),
        migrations.AddConstraint(
            model_name="failuregroup",
            constraint=models.UniqueConstraint(
                fields=("application", "process", "engine", "kind", "place"),
                name="failure_one_of_each_cause",
                nulls_distinct=False,
            ),
        ),
        migrations.AddConstraint(
            model_name="failurehour",
            constraint=models.UniqueConstraint(fields=("failure", "hour"), name="failure_hour_unique"),
        ),
        protect("moments_app_keptexchange"),
        let_operators("moments_app_keptexchange", of_person("moments_app_keptexchange")),
        let_operators("moments_app_failuregroup", f"application_id = ANY({APPLICATIONS})"),
        let_operators(
            "moments_app_failurehour", seen("moments_app_failurehour", "moments_app_failuregroup", "failure_id")
        ),
    ]
