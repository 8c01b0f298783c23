import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

from sessions_app.migrations._state_only import StateOnly


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0126_item_store")]

    operations = [
        StateOnly(
            state_operations=[
                migrations.AlterField(
                    model_name="circuit",
                    name="holds_all",
                    field=models.BooleanField(
                        default=False,
                        help_text="True if all jobs wait while the circuit is open. If false, only the jobs of the "
                        "people in `failing` wait.",
                    ),
                ),
                migrations.AlterField(
                    model_name="contextreceipt",
                    name="trimmed",
                    field=models.JSONField(
                        help_text="Number of items and tokens that were left out of each layer, with the reason."
                    ),
                ),
                migrations.AlterField(
                    model_name="contradiction",
                    name="decision",
                    field=models.CharField(
                        blank=True,
                        choices=[("accepted", "Accepted"), ("declined", "Declined")],
                        default="",
                        help_text="Whether an operator confirmed that the later fact ended the earlier fact. Blank if "
                        "no operator has decided.",
                        max_length=16,
                    ),
                ),
                migrations.AlterField(
                    model_name="correction",
                    name="valid_until",
                    field=models.DateTimeField(
                        blank=True,
                        help_text="When the fact stopped being true. Blank if the fact was not ended.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="enginecall",
                    name="dropped_count",
                    field=models.PositiveIntegerField(
                        db_default=0,
                        default=0,
                        help_text="Number of sentences and items that were dropped from the engine's answer, for "
                        "example because the conversation doesn't support them.",
                    ),
                ),
                migrations.AlterField(
                    model_name="enginecall",
                    name="dropped_reasons",
                    field=models.JSONField(
                        blank=True,
                        db_default={},
                        default=dict,
                        help_text="Number of sentences and items that were dropped for each reason.",
                    ),
                ),
                migrations.AlterField(
                    model_name="enginecall",
                    name="kept_count",
                    field=models.PositiveIntegerField(
                        db_default=0,
                        default=0,
                        help_text="Number of sentences and items that were kept from the engine's answer.",
                    ),
                ),
                migrations.AlterField(
                    model_name="failuregroup",
                    name="process",
                    field=models.CharField(
                        help_text="The type of job that failed, or the purpose of the failed call if no job made it.",
                        max_length=32,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="consolidated_at",
                    field=models.DateTimeField(
                        blank=True,
                        editable=False,
                        help_text="When a consolidation wrote the line, or first processed the item if it is not a "
                        "line.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="ended_by",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        editable=False,
                        help_text="What ended the item, such as an API key (key:…), an operator (operator:…) or an "
                        "engine (engine:…). Blank if a later item about the same subject ended it, or if it has not "
                        "ended.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="is_candidate",
                    field=models.BooleanField(
                        db_default=False,
                        default=False,
                        editable=False,
                        help_text="Whether a shard learned the item from one person. If true, only this person can "
                        "see the item. A release creates a separate item for other people.",
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="is_wrong",
                    field=models.BooleanField(
                        db_default=False,
                        default=False,
                        editable=False,
                        help_text="True if a correction established that the item was never true.",
                        verbose_name="never true",
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="position",
                    field=models.PositiveIntegerField(
                        blank=True,
                        editable=False,
                        help_text="Position of the line in the stream's text. Blank if the item is not a line.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="source_user",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="The person from whom a shard learned the item. When the person is erased, the item "
                        "is deleted.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.userprofile",
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="consolidated_content",
                    field=models.TextField(
                        blank=True,
                        help_text="Text of the stream, one statement per line. Consolidations merge observations into "
                        "this text.",
                    ),
                ),
                migrations.AlterField(
                    model_name="moment",
                    name="journey",
                    field=models.TextField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Dated headlines of the person's latest moments, ending with this moment. Blank "
                        "unless this is the last moment of a build.",
                    ),
                ),
                migrations.AlterField(
                    model_name="owntext",
                    name="places",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.PositiveIntegerField(),
                        help_text="Which lines of the turn repeat an earlier context, as line numbers from 0. Blank "
                        "if all lines repeat an earlier context.",
                        null=True,
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="release",
                    name="narrower",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="The earlier release that this release extends from one agent's users to every "
                        "agent's users.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="wider",
                        to="moments_app.release",
                    ),
                ),
                migrations.AlterField(
                    model_name="retracteditem",
                    name="is_rewritten",
                    field=models.BooleanField(
                        default=False,
                        help_text="True if the row was rewritten without the withdrawn parts. False if the row was "
                        "removed.",
                    ),
                ),
                migrations.AlterField(
                    model_name="retraction",
                    name="created_at",
                    field=models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="Time of the retraction. Also stored in the field `retracted_at` of each retracted "
                        "turn.",
                    ),
                ),
                migrations.AlterField(
                    model_name="retraction",
                    name="waiting",
                    field=models.JSONField(
                        default=dict,
                        help_text="For each process: the parameters of its rebuild jobs that were unfinished when the "
                        "retraction was made.",
                    ),
                ),
                migrations.AlterField(
                    model_name="servedline",
                    name="is_quote",
                    field=models.BooleanField(
                        help_text="True if contexts contained the line only as part of a quoted turn."
                    ),
                ),
                migrations.AlterField(
                    model_name="statementchange",
                    name="reason",
                    field=models.CharField(
                        blank=True,
                        help_text="Why the statement changed, such as a correction (correction:…) or a retraction "
                        "(retraction:…). Blank if the action explains the change.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="webhookendpoint",
                    name="waits_until",
                    field=models.DateTimeField(
                        editable=False,
                        help_text="Time before which no event is sent. Blank if events are sent immediately.",
                        null=True,
                    ),
                ),
            ],
        )
    ]
