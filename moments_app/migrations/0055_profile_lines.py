"""A profile's text is made of lines, each with what it was made of and from when until when it stood."""

import uuid

import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

from sessions_app.limited_operators import let_operators, of_person
from sessions_app.row_security import protect

TABLE = "moments_app_profileline"


class Migration(migrations.Migration):
    dependencies = [
        ("moments_app", "0054_facts_of_people"),
        ("sessions_app", "0022_speakers"),
    ]

    operations = [
        migrations.CreateModel(
            name="ProfileLine",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("line_id", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ("heading", models.TextField(blank=True)),
                ("text", models.TextField()),
                ("joint", models.TextField(default="\n", help_text="What parts it from the line before.")),
                ("position", models.PositiveIntegerField(default=0, help_text="Its place in the profile.")),
                (
                    "source_message_ids",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        blank=True,
                        default=list,
                        help_text="The turns it was made of; blank: not known.",
                        size=None,
                    ),
                ),
                ("engine", models.CharField(blank=True, max_length=255)),
                (
                    "actor",
                    models.CharField(blank=True, help_text="Who wrote it: key:…, operator:… or job:…", max_length=255),
                ),
                (
                    "is_pinned",
                    models.BooleanField(default=False, help_text="Engines leave it as it is.", verbose_name="pinned"),
                ),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("ended_by", models.CharField(blank=True, max_length=255)),
                (
                    "end_reason",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("changed", "changed into another line"),
                            ("ended", "holds no more"),
                            ("by hand", "a person took it out"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="profile_lines",
                        to="moments_app.job",
                    ),
                ),
                (
                    "prompt_version",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to="moments_app.promptversion",
                    ),
                ),
                (
                    "replaced_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="replaces",
                        to="moments_app.profileline",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="profile_lines",
                        to="sessions_app.userprofile",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("ended_at", None)),
                        fields=["user", "position", "id"],
                        name="profile_line_now",
                    ),
                    models.Index(fields=["user", "-ended_at", "-id"], name="profile_line_ended"),
                ],
            },
        ),
        protect(TABLE),
        let_operators(TABLE, of_person(TABLE)),
    ]
