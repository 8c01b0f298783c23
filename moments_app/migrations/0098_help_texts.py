import django.contrib.postgres.fields
import django.core.serializers.json
import django.core.validators
import django.db.models.deletion
import django.utils.timezone
import pgvector.django.halfvec
from django.db import migrations, models

from sessions_app.migrations._state_only import StateOnly


class Migration(migrations.Migration):
    dependencies = [
        ("moments_app", "0090_nothing_evicted_by_a_buffer"),
    ]

    operations = [
        StateOnly(
            state_operations=[
                migrations.AlterField(
                    model_name="circuit",
                    name="error",
                    field=models.TextField(blank=True, help_text="Last error."),
                ),
                migrations.AlterField(
                    model_name="circuit",
                    name="failures",
                    field=models.PositiveIntegerField(default=0, help_text="Number of failures in a row."),
                ),
                migrations.AlterField(
                    model_name="circuit",
                    name="holds_all",
                    field=models.BooleanField(
                        default=False, help_text="Whether jobs of all people are held, or only those of one person."
                    ),
                ),
                migrations.AlterField(
                    model_name="circuit",
                    name="is_probing",
                    field=models.BooleanField(
                        default=False, help_text="Whether the probe has not called the engine yet."
                    ),
                ),
                migrations.AlterField(
                    model_name="circuit",
                    name="lone_subject",
                    field=models.BigIntegerField(
                        blank=True, help_text="The person whose own text causes the failures.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="circuit",
                    name="probe",
                    field=models.BigIntegerField(
                        blank=True, help_text="The latest job that tried the engine.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="circuit",
                    name="reason",
                    field=models.CharField(blank=True, help_text="Kind of the last error.", max_length=32),
                ),
                migrations.AlterField(
                    model_name="circuit",
                    name="since",
                    field=models.DateTimeField(
                        default=django.utils.timezone.now, help_text="When the circuit was opened or closed."
                    ),
                ),
                migrations.AlterField(
                    model_name="circuit",
                    name="subject",
                    field=models.BigIntegerField(
                        blank=True, help_text="The person, if only calls about one person failed.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="contextreceipt",
                    name="after_sequence",
                    field=models.BigIntegerField(
                        blank=True,
                        help_text="Latest turn of the session when the context was served. −1: none.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="contextreceipt",
                    name="query_hash",
                    field=models.CharField(
                        blank=True, help_text="SHA-256 of the query. Blank without a query.", max_length=64
                    ),
                ),
                migrations.AlterField(
                    model_name="contextreceipt",
                    name="sealed",
                    field=models.BinaryField(blank=True, help_text="The encrypted context.", null=True),
                ),
                migrations.AlterField(
                    model_name="contextreceipt",
                    name="text_hash",
                    field=models.CharField(help_text="SHA-256 of the rendered context.", max_length=64),
                ),
                migrations.AlterField(
                    model_name="contextreceipt",
                    name="trimmed",
                    field=models.JSONField(help_text="Items left out because of the budget."),
                ),
                migrations.AlterField(
                    model_name="contradiction",
                    name="decision",
                    field=models.CharField(
                        blank=True,
                        choices=[("accepted", "Accepted"), ("declined", "Declined")],
                        default="",
                        help_text="The operator's answer. Blank: none yet.",
                        max_length=16,
                    ),
                ),
                migrations.AlterField(
                    model_name="contradiction",
                    name="reason",
                    field=models.CharField(help_text="Why the platform isn't sure.", max_length=255),
                ),
                migrations.AlterField(
                    model_name="correctedturn",
                    name="right",
                    field=models.TextField(blank=True, help_text="The correct words. Blank: none."),
                ),
                migrations.AlterField(
                    model_name="correctedturn",
                    name="wrong",
                    field=models.TextField(help_text="The wrong words."),
                ),
                migrations.AlterField(
                    model_name="correction",
                    name="after",
                    field=models.TextField(blank=True, help_text="Text of the fact now. Blank: none."),
                ),
                migrations.AlterField(
                    model_name="correction",
                    name="before",
                    field=models.TextField(help_text="Text of the fact before."),
                ),
                migrations.AlterField(
                    model_name="correction",
                    name="changes",
                    field=models.JSONField(
                        default=list,
                        encoder=django.core.serializers.json.DjangoJSONEncoder,
                        help_text="Each changed row, with its state before.",
                    ),
                ),
                migrations.AlterField(
                    model_name="correction",
                    name="valid_until",
                    field=models.DateTimeField(
                        blank=True, help_text="When the ended fact stopped being true.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="embeddingmodel",
                    name="input_types",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="`input_type` sent with queries and with stored texts.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="embeddingmodel",
                    name="is_active",
                    field=models.BooleanField(default=False, help_text="Whether searches use this model."),
                ),
                migrations.AlterField(
                    model_name="embeddingmodel",
                    name="is_filled",
                    field=models.BooleanField(
                        db_default=False, default=False, help_text="Whether every text has a vector of this model."
                    ),
                ),
                migrations.AlterField(
                    model_name="enginecall",
                    name="cost_usd",
                    field=models.DecimalField(
                        blank=True,
                        decimal_places=6,
                        help_text="Cost in USD. Blank if the price is unknown.",
                        max_digits=12,
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="enginecall",
                    name="dropped_count",
                    field=models.PositiveIntegerField(
                        db_default=0,
                        default=0,
                        help_text="Number of sentences and items left out because the conversation doesn't support "
                        "them.",
                    ),
                ),
                migrations.AlterField(
                    model_name="enginecall",
                    name="dropped_reasons",
                    field=models.JSONField(
                        blank=True, db_default={}, default=dict, help_text="Number of items left out, by reason."
                    ),
                ),
                migrations.AlterField(
                    model_name="enginecall",
                    name="is_part",
                    field=models.BooleanField(
                        db_default=False,
                        default=False,
                        help_text="One task of a combined call, for its prompt. The call itself has the "
                        "tokens, cost and duration.",
                        verbose_name="part of a combined call",
                    ),
                ),
                migrations.AlterField(
                    model_name="enginecall",
                    name="kept_count",
                    field=models.PositiveIntegerField(
                        db_default=0, default=0, help_text="Number of sentences and items of the answer that were used."
                    ),
                ),
                migrations.AlterField(
                    model_name="entity",
                    name="external_id",
                    field=models.CharField(
                        blank=True,
                        editable=False,
                        help_text="The client's own id. Blank: none.",
                        max_length=255,
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="entity",
                    name="written_by",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        editable=False,
                        help_text="The API key that added it (key:…). Blank: unknown.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="factembedding",
                    name="ask_again_at",
                    field=models.DateTimeField(
                        help_text="When a rejected text is sent again. Blank: with the next batch.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="factembedding",
                    name="refusal",
                    field=models.CharField(
                        blank=True, db_default="", default="", help_text="Latest error of the endpoint.", max_length=255
                    ),
                ),
                migrations.AlterField(
                    model_name="factembedding",
                    name="refusals",
                    field=models.PositiveSmallIntegerField(
                        db_default=0, default=0, help_text="Number of times that the endpoint rejected the text."
                    ),
                ),
                migrations.AlterField(
                    model_name="factembedding",
                    name="said_at",
                    field=models.DateTimeField(help_text="When the text was said. Copied here for searches."),
                ),
                migrations.AlterField(
                    model_name="factembedding",
                    name="vector",
                    field=pgvector.django.halfvec.HalfVectorField(
                        help_text="Blank if the endpoint rejects this text.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="failuregroup",
                    name="error",
                    field=models.TextField(blank=True, help_text="Latest error."),
                ),
                migrations.AlterField(
                    model_name="failuregroup",
                    name="place",
                    field=models.CharField(
                        blank=True, help_text="Place in the code, for a bug or a wrong setting.", max_length=255
                    ),
                ),
                migrations.AlterField(
                    model_name="failuregroup",
                    name="process",
                    field=models.CharField(
                        help_text="The process that failed, or the purpose of the query.", max_length=32
                    ),
                ),
                migrations.AlterField(
                    model_name="job",
                    name="circuit",
                    field=models.ForeignKey(
                        blank=True,
                        db_index=False,
                        help_text="The open circuit that holds the job.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="jobs",
                        to="moments_app.circuit",
                    ),
                ),
                migrations.AlterField(
                    model_name="job",
                    name="failure",
                    field=models.ForeignKey(
                        blank=True,
                        db_index=False,
                        help_text="The failure that ended the last attempt.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="jobs",
                        to="moments_app.failuregroup",
                    ),
                ),
                migrations.AlterField(
                    model_name="job",
                    name="held_by",
                    field=models.CharField(
                        blank=True,
                        choices=[
                            ("backoff", "a retry after a failure"),
                            ("circuit", "an unavailable provider"),
                            ("budget", "the next day, because a daily limit is reached"),
                            ("step", "another job"),
                        ],
                        db_default="",
                        default="",
                        help_text="What the job waits for.",
                        max_length=16,
                    ),
                ),
                migrations.AlterField(
                    model_name="job",
                    name="held_since",
                    field=models.DateTimeField(blank=True, help_text="Since when the job waits.", null=True),
                ),
                migrations.AlterField(
                    model_name="job",
                    name="key",
                    field=models.ForeignKey(
                        blank=True,
                        db_index=False,
                        help_text="The API key whose requests queued the job.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="sessions_app.apikey",
                    ),
                ),
                migrations.AlterField(
                    model_name="job",
                    name="result",
                    field=models.JSONField(
                        blank=True, default=dict, help_text="The results, or the reason why the job was skipped."
                    ),
                ),
                migrations.AlterField(
                    model_name="job",
                    name="run_after",
                    field=models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="Earliest start, because of a backoff or an open circuit.",
                    ),
                ),
                migrations.AlterField(
                    model_name="job",
                    name="trace",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Trace of the request that queued the job.",
                        max_length=55,
                    ),
                ),
                migrations.AlterField(
                    model_name="job",
                    name="worker",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="The worker of the latest attempt. Blank: unknown.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="agent_id",
                    field=models.CharField(
                        blank=True, help_text="Agent of the stream. Blank: every agent.", max_length=255
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="application",
                    field=models.ForeignKey(
                        blank=True,
                        db_default=models.Value(1),
                        db_index=False,
                        default=None,
                        help_text="Application of a shard. Personal streams belong to the application of the person.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="sessions_app.application",
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="consolidated_content",
                    field=models.TextField(blank=True, help_text="Each consolidation rewrites this text."),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="consolidation_model",
                    field=models.CharField(
                        blank=True, help_text="Model for consolidations. Blank: ENGINE__MODEL.", max_length=255
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="consolidation_prompt",
                    field=models.TextField(
                        blank=True,
                        help_text="How to merge observations into the text. Blank: observations are never "
                        "consolidated.",
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="consolidation_trigger",
                    field=models.PositiveSmallIntegerField(
                        default=5, help_text="Number of waiting observations that starts a consolidation."
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="extraction_model",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="One of MEMORY_FORMATION__STREAM_MODELS. Blank: ENGINE__MODEL.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="extraction_prompt",
                    field=models.TextField(help_text="What to remember in this stream."),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="name",
                    field=models.CharField(blank=True, help_text="Name of the shard.", max_length=64),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="pinned_content",
                    field=models.TextField(blank=True, help_text="Kept word for word, before the consolidated text."),
                ),
                migrations.AlterField(
                    model_name="moment",
                    name="journey",
                    field=models.TextField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="The person's journey up to this moment, written by the build that this moment ends.",
                    ),
                ),
                migrations.AlterField(
                    model_name="momentembedding",
                    name="ask_again_at",
                    field=models.DateTimeField(
                        help_text="When a rejected text is sent again. Blank: with the next batch.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="momentembedding",
                    name="refusal",
                    field=models.CharField(
                        blank=True, db_default="", default="", help_text="Latest error of the endpoint.", max_length=255
                    ),
                ),
                migrations.AlterField(
                    model_name="momentembedding",
                    name="refusals",
                    field=models.PositiveSmallIntegerField(
                        db_default=0, default=0, help_text="Number of times that the endpoint rejected the text."
                    ),
                ),
                migrations.AlterField(
                    model_name="momentembedding",
                    name="said_at",
                    field=models.DateTimeField(help_text="When the text was said. Copied here for searches."),
                ),
                migrations.AlterField(
                    model_name="momentembedding",
                    name="vector",
                    field=pgvector.django.halfvec.HalfVectorField(
                        help_text="Blank if the endpoint rejects this text.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="owntext",
                    name="places",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.PositiveIntegerField(),
                        help_text="Line numbers, from 0. Blank if the turn has no other text.",
                        null=True,
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="promptresource",
                    name="application",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="Application with its own version of the prompt. Blank: site-wide.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="sessions_app.application",
                    ),
                ),
                migrations.AlterField(
                    model_name="promptresource",
                    name="previous_version",
                    field=models.ForeignKey(
                        blank=True,
                        editable=False,
                        help_text="Version that was active before the current one.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="moments_app.promptversion",
                    ),
                ),
                migrations.AlterField(
                    model_name="promptversion",
                    name="is_tried",
                    field=models.BooleanField(
                        db_default=False,
                        default=False,
                        editable=False,
                        help_text="Whether the version was tried on a sample.",
                    ),
                ),
                migrations.AlterField(
                    model_name="release",
                    name="actor",
                    field=models.CharField(help_text="The operator who decided (operator:…).", max_length=255),
                ),
                migrations.AlterField(
                    model_name="release",
                    name="atom",
                    field=models.OneToOneField(
                        blank=True,
                        help_text="The shared item.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="release",
                        to="moments_app.memoryatom",
                    ),
                ),
                migrations.AlterField(
                    model_name="release",
                    name="narrower",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="The release to one agent's users that this release extends to every agent.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="wider",
                        to="moments_app.release",
                    ),
                ),
                migrations.AlterField(
                    model_name="release",
                    name="replaces",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="The previous release with another wording.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="replaced_by",
                        to="moments_app.release",
                    ),
                ),
                migrations.AlterField(
                    model_name="release",
                    name="signature",
                    field=models.CharField(
                        editable=False, help_text="Signature of wording, stream and time.", max_length=255
                    ),
                ),
                migrations.AlterField(
                    model_name="retracteditem",
                    name="is_rewritten",
                    field=models.BooleanField(
                        default=False, help_text="Whether the row stayed, without the withdrawn parts."
                    ),
                ),
                migrations.AlterField(
                    model_name="retracteditem",
                    name="model",
                    field=models.CharField(help_text="Label of the table.", max_length=64),
                ),
                migrations.AlterField(
                    model_name="retracteditem",
                    name="user",
                    field=models.ForeignKey(
                        help_text="The person of the retraction. Blank: a shard.",
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
                        default=django.utils.timezone.now, help_text="Also the time of retraction in the turns."
                    ),
                ),
                migrations.AlterField(
                    model_name="retraction",
                    name="entity_ids",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.UUIDField(),
                        blank=True,
                        help_text="Ids of the retracted tasks, goals and problems.",
                        null=True,
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="retraction",
                    name="item_ids",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.UUIDField(),
                        blank=True,
                        help_text="Ids of directly written items. Blank: turns were retracted.",
                        null=True,
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="retraction",
                    name="result",
                    field=models.JSONField(
                        default=dict, help_text="Number of retracted turns and of withdrawn rows by kind."
                    ),
                ),
                migrations.AlterField(
                    model_name="retraction",
                    name="sequences",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        blank=True,
                        help_text="Sequences of the turns. Blank: the whole session.",
                        null=True,
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="retraction",
                    name="stream",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="The shard of the shared items.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="retractions",
                        to="moments_app.memorystream",
                        verbose_name="shard",
                    ),
                ),
                migrations.AlterField(
                    model_name="retraction",
                    name="waiting",
                    field=models.JSONField(
                        default=dict, help_text="Rebuilds that earlier retractions still had to do, by process."
                    ),
                ),
                migrations.AlterField(
                    model_name="servedline",
                    name="hash",
                    field=models.BigIntegerField(help_text="Hash of the words; see `served_text`."),
                ),
                migrations.AlterField(
                    model_name="servedline",
                    name="is_quote",
                    field=models.BooleanField(
                        help_text="Whether the text was served only as a verbatim quote of a person."
                    ),
                ),
                migrations.AlterField(
                    model_name="servedline",
                    name="served_on",
                    field=models.DateField(
                        db_index=True,
                        default=django.utils.timezone.localdate,
                        help_text="Month in which it was served last.",
                    ),
                ),
                migrations.AlterField(
                    model_name="summary",
                    name="source_message_ids",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        blank=True,
                        default=list,
                        help_text="The source turns.",
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="turnembedding",
                    name="ask_again_at",
                    field=models.DateTimeField(
                        help_text="When a rejected text is sent again. Blank: with the next batch.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="turnembedding",
                    name="refusal",
                    field=models.CharField(
                        blank=True, db_default="", default="", help_text="Latest error of the endpoint.", max_length=255
                    ),
                ),
                migrations.AlterField(
                    model_name="turnembedding",
                    name="refusals",
                    field=models.PositiveSmallIntegerField(
                        db_default=0, default=0, help_text="Number of times that the endpoint rejected the text."
                    ),
                ),
                migrations.AlterField(
                    model_name="turnembedding",
                    name="said_at",
                    field=models.DateTimeField(help_text="When the text was said. Copied here for searches."),
                ),
                migrations.AlterField(
                    model_name="turnembedding",
                    name="vector",
                    field=pgvector.django.halfvec.HalfVectorField(
                        help_text="Blank if the endpoint rejects this text.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="vocabulary",
                    name="fact_words",
                    field=models.PositiveBigIntegerField(
                        default=0, help_text="Sum of the number of different words of each fact."
                    ),
                ),
                migrations.AlterField(
                    model_name="webhookdelivery",
                    name="due_at",
                    field=models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="Earliest time of the next attempt. Blank: sent or given up.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="webhookdelivery",
                    name="error",
                    field=models.CharField(blank=True, help_text="Error of the last attempt.", max_length=255),
                ),
                migrations.AlterField(
                    model_name="webhookendpoint",
                    name="failures",
                    field=models.PositiveIntegerField(
                        default=0, editable=False, help_text="Number of failed attempts in a row."
                    ),
                ),
                migrations.AlterField(
                    model_name="webhookendpoint",
                    name="is_active",
                    field=models.BooleanField(
                        default=True, help_text="Whether events are sent to this webhook.", verbose_name="active"
                    ),
                ),
                migrations.AlterField(
                    model_name="webhookendpoint",
                    name="url",
                    field=models.CharField(
                        help_text="URL that receives the events.",
                        max_length=2000,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^https?://[^\\s/]+", "Enter a URL that starts with https:// and has no spaces."
                            )
                        ],
                        verbose_name="address",
                    ),
                ),
                migrations.AlterField(
                    model_name="webhookendpoint",
                    name="waits_until",
                    field=models.DateTimeField(
                        editable=False, help_text="Earliest time of the next attempt.", null=True
                    ),
                ),
            ]
        )
    ]
