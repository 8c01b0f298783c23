from django.db import migrations, models

from sessions_app.migrations._state_only import StateOnly


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0056_help_texts")]

    operations = [
        StateOnly(
            state_operations=[
                migrations.AlterField(
                    model_name="session",
                    name="message_count",
                    field=models.PositiveBigIntegerField(
                        default=0,
                        help_text="Number of turns, including archived and deleted turns, but not partition events.",
                    ),
                ),
            ],
        )
    ]
