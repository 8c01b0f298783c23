from django.db import migrations, models


class Migration(migrations.Migration):
    """Remember which assistants may ask for keys no more."""

    dependencies = [("sessions_app", "0036_oauth")]

    operations = [
        migrations.AddField("oauthclient", "revoked_at", models.DateTimeField(blank=True, editable=False, null=True)),
    ]
