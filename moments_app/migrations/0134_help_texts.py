import django.contrib.postgres.fields
import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

from sessions_app.migrations._state_only import StateOnly


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0133_vectors_of_items")]

    operations = [
        StateOnly(
            state_operations=[
                migrations.AlterField(
                    model_name="circuit",
                    name="failing",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        blank=True,
                        db_default=[],
                        default=list,
                        help_text="Primary keys of people whose calls failed after the engine's last successful call.",
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="contextreceipt",
                    name="trimmed",
                    field=models.JSONField(help_text="How many items and tokens of each layer were left out, and why."),
                ),
                migrations.AlterField(
                    model_name="factembedding",
                    name="said_at",
                    field=models.DateTimeField(
                        help_text="Time when the embedded text was said, copied from its source to speed up searches."
                    ),
                ),
                migrations.AlterField(
                    model_name="failuregroup",
                    name="process",
                    field=models.CharField(
                        help_text="Type of the failed job. If a call failed outside a job: purpose of the call.",
                        max_length=32,
                    ),
                ),
                migrations.AlterField(
                    model_name="itemembedding",
                    name="said_at",
                    field=models.DateTimeField(
                        help_text="Time when the embedded text was said, copied from its source to speed up searches."
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="consolidated_at",
                    field=models.DateTimeField(
                        blank=True,
                        editable=False,
                        help_text="For a line: when a consolidation wrote it. For other items: when a consolidation "
                        "first processed them.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="merged_into",
                    field=models.ForeignKey(
                        blank=True,
                        db_index=False,
                        editable=False,
                        help_text="Line that contains the item, in the stream's text. Blank if no line contains the "
                        "item.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="parts",
                        to="moments_app.memoryatom",
                    ),
                ),
                migrations.AlterField(
                    model_name="moment",
                    name="journey",
                    field=models.TextField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Headlines with dates of the person's latest moments, ending with this moment. "
                        "Blank unless this is the last moment of a build.",
                    ),
                ),
                migrations.AlterField(
                    model_name="momentembedding",
                    name="said_at",
                    field=models.DateTimeField(
                        help_text="Time when the embedded text was said, copied from its source to speed up searches."
                    ),
                ),
                migrations.AlterField(
                    model_name="owntext",
                    name="places",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.PositiveIntegerField(),
                        help_text="Numbers (from 0) of the turn's lines that repeat an earlier context. Blank if all "
                        "lines repeat an earlier context.",
                        null=True,
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="release",
                    name="narrower",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="The earlier release to one agent's users. This release extends it to the users of "
                        "all agents.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="wider",
                        to="moments_app.release",
                    ),
                ),
                migrations.AlterField(
                    model_name="retraction",
                    name="item_ids",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.UUIDField(),
                        blank=True,
                        help_text="Ids of the retracted items that a client or operator had written directly: facts "
                        "and observations. Blank if turns were retracted.",
                        null=True,
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="retraction",
                    name="waiting",
                    field=models.JSONField(
                        default=dict,
                        help_text="Parameters of the rebuild jobs that had not finished at the time of the "
                        "retraction, grouped by process.",
                    ),
                ),
                migrations.AlterField(
                    model_name="servedline",
                    name="served_on",
                    field=models.DateField(
                        db_index=True,
                        default=django.utils.timezone.localdate,
                        help_text="Date on which a context last contained the line. It is updated at most every 30 "
                        "days.",
                    ),
                ),
                migrations.AlterField(
                    model_name="statementchange",
                    name="reason",
                    field=models.CharField(
                        blank=True,
                        help_text="Reason for the change, for example a correction (correction:…) or a retraction "
                        "(retraction:…). Blank if the action explains the change.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="storeditem",
                    name="expires_at",
                    field=models.DateTimeField(
                        blank=True,
                        help_text="Time when the item expires. A write, or a read that refreshes the item, postpones "
                        "this time.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="storeditem",
                    name="text",
                    field=models.TextField(
                        blank=True,
                        help_text="The text that is searched. If the text is blank, searches don't find the item.",
                    ),
                ),
                migrations.AlterField(
                    model_name="turnembedding",
                    name="said_at",
                    field=models.DateTimeField(
                        help_text="Time when the embedded text was said, copied from its source to speed up searches."
                    ),
                ),
                migrations.AlterField(
                    model_name="vocabulary",
                    name="fact_words",
                    field=models.PositiveBigIntegerField(
                        default=0,
                        help_text="Total number of words in all facts. Repetitions within a fact don't count.",
                    ),
                ),
                migrations.AlterField(
                    model_name="webhookendpoint",
                    name="waits_until",
                    field=models.DateTimeField(
                        editable=False,
                        help_text="No event is sent before this time. Blank if events are sent immediately.",
                        null=True,
                    ),
                ),
            ]
        )
    ]
