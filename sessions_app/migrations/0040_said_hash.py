from django.db import migrations, models


class Migration(migrations.Migration):
    """Let an archived turn keep a hash of its text. Those that are archived already have none."""

    dependencies = [("sessions_app", "0039_archives_together")]

    operations = [
        migrations.AddField(
            "message",
            "said_hash",
            models.BinaryField(
                editable=False,
                help_text="Of an archived turn with an external_id: tells whether a repeated one says the same.",
                null=True,
            ),
        ),
    ]
