"""Trials of prompts over a sample."""

import django.db.models.deletion
from django.db import migrations, models

from sessions_app.limited_operators import let_operators, seen

TRIALS, SIDES = "moments_app_prompttrial", "moments_app_trialside"


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0069_days_of_a_person")]

    operations = [
        migrations.CreateModel(
            name="PromptTrial",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("size", models.PositiveIntegerField(help_text="Sessions or streams that were chosen.")),
                ("tried", models.PositiveIntegerField(default=0, help_text="On how many of them it was.")),
                (
                    "differing",
                    models.PositiveIntegerField(
                        default=0, help_text="On how many of them the two made something else."
                    ),
                ),
                ("requested_by", models.CharField(max_length=255)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "version",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="trials",
                        to="moments_app.promptversion",
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="TrialSide",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("calls", models.PositiveIntegerField(default=0)),
                ("failed", models.PositiveIntegerField(default=0, help_text="On how many it came to nothing.")),
                ("milliseconds", models.PositiveBigIntegerField(default=0)),
                ("tokens", models.PositiveBigIntegerField(default=0)),
                ("usd", models.DecimalField(decimal_places=6, default=0, max_digits=12)),
                ("kept", models.PositiveIntegerField(default=0)),
                ("dropped", models.PositiveIntegerField(default=0)),
                ("probes", models.PositiveIntegerField(default=0)),
                ("met", models.PositiveIntegerField(default=0)),
                (
                    "trial",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="sides",
                        to="moments_app.prompttrial",
                    ),
                ),
                (
                    "version",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="moments_app.promptversion",
                    ),
                ),
            ],
            options={"ordering": ["pk"]},
        ),
        migrations.AddConstraint(
            model_name="trialside",
            constraint=models.UniqueConstraint(fields=("trial", "version"), name="trial_side_once"),
        ),
        let_operators(TRIALS, seen(TRIALS, "moments_app_promptversion", "version_id")),
        let_operators(SIDES, seen(SIDES, TRIALS, "trial_id")),
    ]
