from django.db import migrations, models

from sessions_app.migrations._state_only import StateOnly


class Migration(migrations.Migration):
    dependencies = [("lab", "0005_help_texts")]

    operations = [
        StateOnly(
            state_operations=[
                migrations.AlterField(
                    model_name="proberesult",
                    name="is_met",
                    field=models.BooleanField(
                        help_text="Whether the context contained at least half of the answer's words. If the probe "
                        "names turns as evidence, the context must also contain one of these turns.",
                        verbose_name="met",
                    ),
                ),
            ],
        )
    ]
