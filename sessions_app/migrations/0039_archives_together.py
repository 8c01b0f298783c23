from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models


class Migration(migrations.Migration):
    """Let several archives of a person be in one file. Those that there are begin at the beginning of theirs."""

    dependencies = [("sessions_app", "0038_settings_sent_on")]

    operations = [
        migrations.AddField(
            "archive",
            "byte_offset",
            models.BigIntegerField(db_default=0, default=0, help_text="Where in the file they begin."),
        ),
        migrations.AlterField(
            "archive", "name", models.CharField(help_text="Of the file, in the storage.", max_length=255)
        ),
        # What the columns hold stays as it is.
        migrations.AlterField("archive", "byte_count", models.PositiveBigIntegerField(help_text="In the file.")),
        migrations.AlterField("archive", "sha256", models.CharField(help_text="Of these bytes.", max_length=64)),
        migrations.AlterField(
            "archive",
            "block_sequences",
            ArrayField(
                models.BigIntegerField(), default=list, help_text="First turn of each part that is read by itself."
            ),
        ),
        migrations.AlterField(
            "archive",
            "block_offsets",
            ArrayField(models.BigIntegerField(), default=list, help_text="Where each begins, from the first."),
        ),
    ]
