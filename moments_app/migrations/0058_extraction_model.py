"""The model that extracts for a stream: a column, which rewrites no table."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0057_probes")]

    operations = [
        migrations.AddField(
            "memorystream",
            "extraction_model",
            models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Blank: MEMORY_FORMATION__MODEL. Another has to be one of MEMORY_FORMATION__STREAM_MODELS.",
                max_length=255,
            ),
        ),
    ]
