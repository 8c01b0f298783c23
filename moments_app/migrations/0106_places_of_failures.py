from django.db import migrations, models

from sessions_app.migrations._state_only import StateOnly


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0105_isolated_people")]

    operations = [
        StateOnly(
            state_operations=[
                migrations.AlterField(
                    "failuregroup",
                    "place",
                    models.CharField(blank=True, help_text="The error, where it is not an engine's.", max_length=255),
                )
            ]
        )
    ]
