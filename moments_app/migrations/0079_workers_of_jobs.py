from django.db import migrations, models


class Migration(migrations.Migration):
    """A job names the process that works on it."""

    dependencies = [("moments_app", "0078_unique_ids_of_items")]

    operations = [
        migrations.AddField(
            "job",
            "worker",
            models.CharField(
                max_length=255,
                blank=True,
                default="",
                db_default="",
                help_text="The process that took it last; blank if it isn't known.",
            ),
        ),
    ]
