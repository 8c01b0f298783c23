import django.db.models.functions.datetime
import django.utils.timezone
from django.db import migrations, models

from sessions_app.migrations._state_only import StateOnly


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0059_help_texts")]

    operations = [
        StateOnly(
            state_operations=[
                migrations.AlterField(
                    model_name="session",
                    name="last_arrived_at",
                    field=models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        default=django.utils.timezone.now,
                        help_text="When the platform last received a message. The idle time of the session is counted "
                        "from here.",
                    ),
                ),
            ],
        )
    ]
