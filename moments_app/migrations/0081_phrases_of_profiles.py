"""Interests and topics of profiles have the turns that say them."""

import uuid

import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

from sessions_app.limited_operators import let_operators, of_person
from sessions_app.row_security import protect

TABLE = "moments_app_profilephrase"


class Migration(migrations.Migration):
    dependencies = [
        ("moments_app", "0080_values_of_what_is_over"),
        ("sessions_app", "0042_functions_on_turns"),
    ]

    operations = [
        migrations.CreateModel(
            name="ProfilePhrase",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("phrase_id", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ("kind", models.CharField(choices=[("interest", "Interest"), ("topic", "Topic")], max_length=16)),
                ("text", models.TextField()),
                (
                    "source_message_ids",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), help_text="The turns that say it.", size=None
                    ),
                ),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "job",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="profile_phrases",
                        to="moments_app.job",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="profile_phrases",
                        to="sessions_app.userprofile",
                    ),
                ),
            ],
        ),
        protect(TABLE),
        let_operators(TABLE, of_person(TABLE)),
    ]
