from django.db import migrations, models

from sessions_app.migrations._state_only import StateOnly


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0057_help_texts")]

    operations = [
        StateOnly(
            state_operations=[
                migrations.AlterField(
                    model_name="message",
                    name="said_hash",
                    field=models.BinaryField(
                        help_text="Hash of the content of an archived turn that has an external_id. The platform uses "
                        "the hash to recognize a message that a client sends again.",
                        null=True,
                    ),
                ),
            ],
        )
    ]
