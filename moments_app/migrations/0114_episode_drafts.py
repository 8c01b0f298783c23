"""Episodes that wait to be published as moments."""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

from sessions_app.limited_operators import let_operators, of_person
from sessions_app.row_security import protect

TABLE = "moments_app_episodedraft"


def _texts() -> django.contrib.postgres.fields.ArrayField:
    return django.contrib.postgres.fields.ArrayField(base_field=models.TextField(), blank=True, default=list, size=None)


class Migration(migrations.Migration):
    dependencies = [
        ("moments_app", "0113_muted_causes"),
        ("sessions_app", "0042_functions_on_turns"),
    ]

    operations = [
        migrations.CreateModel(
            name="EpisodeDraft",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("first_sequence", models.BigIntegerField()),
                ("last_sequence", models.BigIntegerField()),
                ("name", models.CharField(max_length=255)),
                ("summary", models.TextField()),
                ("detail", models.TextField(blank=True)),
                ("topic_tags", _texts()),
                ("emotion_tags", _texts()),
                ("present_persons", _texts()),
                ("engine", models.CharField(max_length=255)),
                (
                    "job",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="moments_app.job",
                    ),
                ),
                (
                    "prompt_version",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="moments_app.promptversion",
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.session",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.userprofile",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("session", "first_sequence"), name="episode_draft_unique"),
                    models.CheckConstraint(
                        condition=models.Q(("first_sequence__lte", models.F("last_sequence"))),
                        name="episode_draft_range_in_order",
                    ),
                ],
            },
        ),
        protect(TABLE),
        let_operators(TABLE, of_person(TABLE)),
    ]
