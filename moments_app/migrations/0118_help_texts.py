import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

from sessions_app.migrations._state_only import StateOnly


class Migration(migrations.Migration):
    dependencies = [
        ("moments_app", "0117_pinned_texts_are_statements"),
    ]

    operations = [
        StateOnly(
            state_operations=[
                migrations.AlterField(
                    model_name="circuit",
                    name="isolated",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        blank=True,
                        db_default=[],
                        default=list,
                        help_text="Primary keys of the people whose calls fail while other people's calls succeed.",
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="circuit",
                    name="probe",
                    field=models.BigIntegerField(
                        blank=True,
                        help_text="Primary key of the latest probe, the job that calls the engine to check whether it"
                        " works again.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="correction",
                    name="after",
                    field=models.TextField(
                        blank=True,
                        help_text="Text of the fact after the correction. Blank if no text replaced the fact.",
                    ),
                ),
                migrations.AlterField(
                    model_name="correction",
                    name="valid_until",
                    field=models.DateTimeField(
                        blank=True, help_text="When the fact stopped being true, if the fact was ended.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="enginecall",
                    name="is_part",
                    field=models.BooleanField(
                        db_default=False,
                        default=False,
                        help_text="Whether this row records one task of a combined call. The combined call's own row "
                        "has the tokens, cost and duration.",
                        verbose_name="part of a combined call",
                    ),
                ),
                migrations.AlterField(
                    model_name="enginecall",
                    name="kept_count",
                    field=models.PositiveIntegerField(
                        db_default=0,
                        default=0,
                        help_text="Number of sentences and items that were used from the answer.",
                    ),
                ),
                migrations.AlterField(
                    model_name="factembedding",
                    name="ask_again_at",
                    field=models.DateTimeField(
                        help_text="When a rejected text is sent again. If blank, the text is sent with the next batch.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="factembedding",
                    name="said_at",
                    field=models.DateTimeField(
                        help_text="Time of the message or statement. The time is copied here to speed up searches."
                    ),
                ),
                migrations.AlterField(
                    model_name="job",
                    name="run_after",
                    field=models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="Earliest time at which the job can start. A backoff or an open circuit postpones "
                        "the start.",
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="confidence",
                    field=models.FloatField(
                        blank=True,
                        editable=False,
                        help_text="The engine's confidence that the item is true, from 0 to 1. Blank if the engine "
                        "gave no confidence.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="corrected_at",
                    field=models.DateTimeField(
                        blank=True,
                        editable=False,
                        help_text="Time at which this item replaced an item that was never true.",
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
                        help_text="Whether an agent learned the item from one person, for a shard. Only that person "
                        "sees the item. A release creates a separate item for others.",
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="is_pinned",
                    field=models.BooleanField(
                        default=False,
                        help_text="Whether the item is pinned. A pinned item is never changed or consolidated by a "
                        "job, and every context includes it.",
                        verbose_name="pinned",
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="related_users",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=255),
                        blank=True,
                        db_default=[],
                        default=list,
                        help_text="user_ids of other people whom the item is about. These people don't get access to "
                        "the item.",
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="shown_in",
                    field=models.ForeignKey(
                        blank=True,
                        db_index=False,
                        help_text="The first consolidation that received the item, even if the new text doesn't "
                        "contain the item.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="shown",
                        to="moments_app.streamversion",
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="source_user",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="The person from whom an item in a shard was learned. If the person is erased, the "
                        "item is deleted, even if the session was deleted earlier.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.userprofile",
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="written_by",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        editable=False,
                        help_text="Key or operator that wrote the item directly (key:… or operator:…). Blank if an "
                        "engine wrote it or the author is unknown.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="agent_id",
                    field=models.CharField(
                        blank=True,
                        help_text="Agent that uses the stream. If blank, every agent uses the stream.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="consolidation_prompt",
                    field=models.TextField(
                        blank=True,
                        help_text="Prompt that tells the engine how to merge observations into the text. If blank, "
                        "observations are never consolidated.",
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="consolidation_trigger",
                    field=models.PositiveSmallIntegerField(
                        default=5, help_text="Number of new waiting observations that starts a consolidation."
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="extraction_prompt",
                    field=models.TextField(help_text="Prompt that tells the engine what to remember in this stream."),
                ),
                migrations.AlterField(
                    model_name="momentembedding",
                    name="ask_again_at",
                    field=models.DateTimeField(
                        help_text="When a rejected text is sent again. If blank, the text is sent with the next batch.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="momentembedding",
                    name="said_at",
                    field=models.DateTimeField(
                        help_text="Time of the message or statement. The time is copied here to speed up searches."
                    ),
                ),
                migrations.AlterField(
                    model_name="owntext",
                    name="places",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.PositiveIntegerField(),
                        help_text="Numbers of the turn's lines that the platform had served before, counted from 0. "
                        "Blank if the turn has no other text.",
                        null=True,
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="release",
                    name="atom",
                    field=models.OneToOneField(
                        blank=True,
                        help_text="The item that other people see.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="release",
                        to="moments_app.memoryatom",
                    ),
                ),
                migrations.AlterField(
                    model_name="release",
                    name="replaces",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="The previous release, which has different wording.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="replaced_by",
                        to="moments_app.release",
                    ),
                ),
                migrations.AlterField(
                    model_name="retracteditem",
                    name="user",
                    field=models.ForeignKey(
                        help_text="The person whose memory the row belongs to. Blank if the row belongs to a shard.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.userprofile",
                    ),
                ),
                migrations.AlterField(
                    model_name="retraction",
                    name="created_at",
                    field=models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="When the retraction was made, which is also the `retracted_at` of its turns.",
                    ),
                ),
                migrations.AlterField(
                    model_name="retraction",
                    name="stream",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="Shard of the retracted items. Blank if the items belong to a person.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="retractions",
                        to="moments_app.memorystream",
                        verbose_name="shard",
                    ),
                ),
                migrations.AlterField(
                    model_name="servedline",
                    name="is_quote",
                    field=models.BooleanField(
                        help_text="Whether the line was served only as a verbatim quote from a person."
                    ),
                ),
                migrations.AlterField(
                    model_name="turnembedding",
                    name="ask_again_at",
                    field=models.DateTimeField(
                        help_text="When a rejected text is sent again. If blank, the text is sent with the next batch.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="turnembedding",
                    name="said_at",
                    field=models.DateTimeField(
                        help_text="Time of the message or statement. The time is copied here to speed up searches."
                    ),
                ),
            ],
        ),
    ]
