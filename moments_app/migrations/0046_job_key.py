"""A job knows whose calls led to it: what it takes of models counts for that key."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0021_daily_limits"), ("moments_app", "0045_limited_operators")]

    operations = [
        migrations.AddField(
            model_name="job",
            name="key",
            field=models.ForeignKey(
                blank=True,
                db_index=False,
                help_text="Whose calls led to it.",
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="+",
                to="sessions_app.apikey",
            ),
        ),
    ]
