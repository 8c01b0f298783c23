import django.db.models.functions.datetime
import django.utils.timezone
from django.db import migrations, models

from sessions_app.migrations._state_only import StateOnly


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0060_help_texts")]

    operations = [
        StateOnly(
            state_operations=[
                migrations.AlterField(
                    model_name="session",
                    name="compact_on_request",
                    field=models.BooleanField(
                        blank=True,
                        help_text="Whether to compact the session when a client loads its messages or requests a "
                        "context. If blank, the setting SESSION_COMPACTION__ON_REQUEST applies.",
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
                    name="formed_message_count",
                    field=models.PositiveBigIntegerField(
                        default=0, help_text="Number of turns that fact extraction has processed."
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="formed_weighted_tokens",
                    field=models.FloatField(
                        default=0,
                        help_text="Number of tokens that fact extraction has processed, weighted by the role of each "
                        "turn.",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="last_arrived_at",
                    field=models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        default=django.utils.timezone.now,
                        help_text="When the platform last received a message. The session's idle time starts then.",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="last_formation_sequence",
                    field=models.BigIntegerField(
                        blank=True,
                        help_text="Sequence number of the last turn that fact extraction has processed.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="legal_hold",
                    field=models.BooleanField(
                        default=False,
                        help_text="Whether the session is under legal hold, which prevents archiving and deletion.",
                    ),
                ),
                migrations.AlterField(
                    model_name="session",
                    name="retraction_count",
                    field=models.PositiveIntegerField(
                        default=0,
                        help_text="Number of retractions, plus the number of undone retractions. A running job starts "
                        "again if this number changes.",
                    ),
                ),
            ]
        )
    ]
