import django.contrib.postgres.fields
from django.db import migrations, models


def people(help_text: str) -> models.Field:  # type: ignore[type-arg]
    return django.contrib.postgres.fields.ArrayField(
        models.BigIntegerField(), blank=True, db_default=[], default=list, help_text=help_text, size=None
    )


class Migration(migrations.Migration):
    """A circuit lists the people whose calls fail, instead of one of them."""

    dependencies = [("moments_app", "0103_one_open_job_of_a_task")]

    operations = [
        migrations.AddField("circuit", "failing", people("The people whose calls failed since the last answer.")),
        migrations.AddField("circuit", "isolated", people("The people whose calls fail while others are answered.")),
        migrations.RemoveField("circuit", "subject"),
        migrations.RemoveField("circuit", "lone_subject"),
    ]
