import django.db.models.deletion
from django.db import migrations, models

from sessions_app.migrations._state_only import StateOnly


class Migration(migrations.Migration):
    dependencies = [
        ("sessions_app", "0053_help_texts"),
    ]

    operations = [
        StateOnly(
            state_operations=[
                migrations.AlterField(
                    model_name="apikey",
                    name="user",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="Limits the key to one user. If blank, the key is a service key, which is valid for"
                        " all users of its application.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="sessions_app.userprofile",
                    ),
                ),
                migrations.AlterField(
                    model_name="message",
                    name="retracted_at",
                    field=models.DateTimeField(
                        blank=True,
                        help_text="When the turn was retracted. A retracted turn stays in the transcript, but is no "
                        "longer sent to engines or included in contexts.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="message",
                    name="said_hash",
                    field=models.BinaryField(
                        help_text="Hash of an archived turn that has an external_id. The hash is compared with "
                        "messages that a client sends again.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="compact_on_request",
                    field=models.BooleanField(
                        blank=True,
                        help_text="Whether to compact the session before its messages are loaded or a context is "
                        "built. If blank, SESSION_COMPACTION__ON_REQUEST applies.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="counted_message_count",
                    field=models.PositiveBigIntegerField(
                        default=0, help_text="Number of turns in the session when the person's words were last counted."
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="retraction_count",
                    field=models.PositiveIntegerField(
                        default=0,
                        help_text="Number of retractions in the session, and of retractions that were undone. Jobs "
                        "that started before the latest change run again.",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="session_id",
                    field=models.CharField(
                        help_text="The application's own id for the session. The id is unique per user.", max_length=255
                    ),
                ),
            ],
        ),
    ]
