import django.contrib.postgres.fields
import django.utils.timezone
from django.db import migrations, models

from sessions_app.migrations._state_only import StateOnly


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0124_context_usage")]

    operations = [
        StateOnly(
            state_operations=[
                migrations.AlterField(
                    model_name="circuit",
                    name="holds_all",
                    field=models.BooleanField(
                        default=False,
                        help_text="True if an open circuit holds everyone's jobs. If false, it holds only the jobs of "
                        "the people in `failing`.",
                    ),
                ),
                migrations.AlterField(
                    model_name="circuit",
                    name="is_probing",
                    field=models.BooleanField(
                        default=False, help_text="Whether a probe was sent but has not called the engine yet."
                    ),
                ),
                migrations.AlterField(
                    model_name="circuit",
                    name="probe",
                    field=models.BigIntegerField(
                        blank=True,
                        help_text="Primary key of the latest job that was sent as a probe. A probe calls the engine "
                        "to check whether it works again.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="factembedding",
                    name="said_at",
                    field=models.DateTimeField(
                        help_text="Time of the embedded text, copied here to speed up searches."
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="consolidated_at",
                    field=models.DateTimeField(
                        blank=True,
                        editable=False,
                        help_text="Time of the consolidation that wrote the line. For other items: time of the first "
                        "consolidation that read the item, even if no line contains the item.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="is_candidate",
                    field=models.BooleanField(
                        db_default=False,
                        default=False,
                        editable=False,
                        help_text="For an item in a shard: whether the item is a candidate for a release. Only the "
                        "person from whom a candidate was learned can see it. A release creates a separate item for "
                        "other people.",
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="is_pinned",
                    field=models.BooleanField(
                        default=False,
                        help_text="Jobs never change or consolidate a pinned item, and every context includes it.",
                        verbose_name="pinned",
                    ),
                ),
                migrations.AlterField(
                    model_name="moment",
                    name="journey",
                    field=models.TextField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Dated headlines of the person's latest moments, ending with this moment. Only the "
                        "last moment of each build has a journey.",
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="corrected_at",
                    field=models.DateTimeField(
                        blank=True,
                        editable=False,
                        help_text="Time of the correction that created this item. Blank if this item is not a "
                        "correction.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="momentembedding",
                    name="said_at",
                    field=models.DateTimeField(
                        help_text="Time of the embedded text, copied here to speed up searches."
                    ),
                ),
                migrations.AlterField(
                    model_name="owntext",
                    name="places",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.PositiveIntegerField(),
                        help_text="Numbers of the turn's lines that the platform had already served. The first line "
                        "has the number 0. Blank if all lines had been served.",
                        null=True,
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="retraction",
                    name="created_at",
                    field=models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="Time of the retraction. The `retracted_at` of each retracted turn has this time, "
                        "too.",
                    ),
                ),
                migrations.AlterField(
                    model_name="servedline",
                    name="is_quote",
                    field=models.BooleanField(
                        help_text="True if contexts contained this line only as a quote from a turn."
                    ),
                ),
                migrations.AlterField(
                    model_name="turnembedding",
                    name="said_at",
                    field=models.DateTimeField(
                        help_text="Time of the embedded text, copied here to speed up searches."
                    ),
                ),
                migrations.AlterField(
                    model_name="vocabulary",
                    name="fact_words",
                    field=models.PositiveBigIntegerField(
                        default=0, help_text="Number of words in all facts. A word counts only once per fact."
                    ),
                ),
            ],
        )
    ]
