"""The other people whom a user's memory knows, whom statements are about, and the muted incidents of failures."""

import django.contrib.postgres.fields
import django.db.models.deletion
from django.db import migrations, models

from sessions_app.limited_operators import let_operators, of_person
from sessions_app.row_security import protect

TABLE = "moments_app_knownperson"


class Migration(migrations.Migration):
    replaces = [
        ("moments_app", "0110_known_people"),
        ("moments_app", "0113_muted_causes"),
    ]

    dependencies = [
        ("moments_app", "0103_one_open_job_of_a_task"),
        ("moments_app", "0109_statements_of_profiles_found"),
        ("sessions_app", "0052_squashed_0064_without_profile_versions"),
    ]

    operations = [
        migrations.CreateModel(
            name="KnownPerson",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "key",
                    models.CharField(
                        help_text="Id of the person. Two people with the same name have different ids.", max_length=255
                    ),
                ),
                ("name", models.CharField(max_length=255)),
                (
                    "aliases",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=255),
                        blank=True,
                        default=list,
                        help_text="Other names of the person.",
                        size=None,
                    ),
                ),
                (
                    "relationship",
                    models.CharField(
                        blank=True,
                        default="",
                        help_text="What the person is to the user, such as sister or dentist. Blank if unknown.",
                        max_length=64,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="known_people",
                        to="sessions_app.userprofile",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "known persons",
                "indexes": [models.Index(fields=["user", "-id"], name="known_person_newest")],
                "constraints": [
                    models.UniqueConstraint(fields=("user", "key"), name="known_person_key_unique_of_user")
                ],
            },
        ),
        migrations.AddField(
            model_name="memoryatom",
            name="about",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                editable=False,
                help_text="The known person whom the item is about. Blank if the item is not about a known person.",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="statements",
                to="moments_app.knownperson",
            ),
        ),
        migrations.AddField(
            model_name="failuregroup",
            name="muted_causes",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.TextField(),
                blank=True,
                db_default=[],
                default=list,
                help_text="Keys of the muted incidents that the failure belongs to.",
                size=None,
            ),
        ),
        protect(TABLE),
        let_operators(TABLE, of_person(TABLE)),
    ]
