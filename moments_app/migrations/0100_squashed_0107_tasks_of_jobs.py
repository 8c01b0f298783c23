"""Tasks of jobs, and the people whose calls fail. The tables of profiles' lines go: statements replace them."""

import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    replaces = [
        ("moments_app", "0100_without_profile_lines"),
        ("moments_app", "0102_task_of_a_job"),
        ("moments_app", "0105_isolated_people"),
        ("moments_app", "0106_places_of_failures"),
        ("moments_app", "0107_help_texts"),
    ]

    dependencies = [("moments_app", "0099_statements_of_profiles")]

    operations = [
        migrations.DeleteModel(
            name="ProfileLine",
        ),
        migrations.DeleteModel(
            name="ProfilePhrase",
        ),
        migrations.AddField(
            model_name="job",
            name="task",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Name of the schedule or function that the job runs. Blank if the job runs neither.",
                max_length=100,
            ),
        ),
        migrations.AddField(
            model_name="circuit",
            name="failing",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.BigIntegerField(),
                blank=True,
                db_default=[],
                default=list,
                help_text="Primary keys of people whose calls failed after the engine's last successful call.",
                size=None,
            ),
        ),
        migrations.AddField(
            model_name="circuit",
            name="isolated",
            field=django.contrib.postgres.fields.ArrayField(
                base_field=models.BigIntegerField(),
                blank=True,
                db_default=[],
                default=list,
                help_text="Primary keys of the people whose calls fail while other people's calls succeed.",
                size=None,
            ),
        ),
        migrations.RemoveField(
            model_name="circuit",
            name="subject",
        ),
        migrations.RemoveField(
            model_name="circuit",
            name="lone_subject",
        ),
    ]
