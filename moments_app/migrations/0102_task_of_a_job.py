from django.db import migrations, models


class Migration(migrations.Migration):
    """A job names the schedule, or the function call, that it runs."""

    dependencies = [("moments_app", "0100_without_profile_lines")]

    operations = [
        migrations.AddField(
            "job",
            "task",
            models.CharField(
                max_length=100,
                blank=True,
                default="",
                db_default="",
                help_text="The schedule, or the function call, that the job runs.",
            ),
        ),
    ]
