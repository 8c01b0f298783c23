import django.contrib.postgres.fields
import django.core.serializers.json
import django.core.validators
import django.db.models.deletion
import django.utils.timezone
import pgvector.django.halfvec
from django.db import migrations, models

from sessions_app.migrations._state_only import StateOnly


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0106_places_of_failures")]

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
                        help_text="Primary keys of the people whose calls have failed since the engine last answered.",
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="circuit",
                    name="failures",
                    field=models.PositiveIntegerField(default=0, help_text="Number of consecutive failures."),
                ),
                migrations.AlterField(
                    model_name="circuit",
                    name="holds_all",
                    field=models.BooleanField(
                        default=False,
                        help_text="Whether the circuit holds the jobs of all people. If not, it holds the jobs of "
                        "one person.",
                    ),
                ),
                migrations.AlterField(
                    model_name="circuit",
                    name="is_probing",
                    field=models.BooleanField(
                        default=False, help_text="Whether the probe job still has to call the engine."
                    ),
                ),
                migrations.AlterField(
                    model_name="circuit",
                    name="isolated",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        blank=True,
                        db_default=[],
                        default=list,
                        help_text="Primary keys of the people whose calls fail while the calls of others succeed.",
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="circuit",
                    name="probe",
                    field=models.BigIntegerField(
                        blank=True,
                        help_text="Primary key of the latest job that was chosen to try the engine.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="contextreceipt",
                    name="after_sequence",
                    field=models.BigIntegerField(
                        blank=True,
                        help_text="Sequence number of the session's latest turn when the context was served, or −1 "
                        "if there was none.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="contextreceipt",
                    name="query_hash",
                    field=models.CharField(
                        blank=True, help_text="SHA-256 hash of the query. Blank if there was no query.", max_length=64
                    ),
                ),
                migrations.AlterField(
                    model_name="contextreceipt",
                    name="refs",
                    field=models.JSONField(help_text="Addresses of the items in the context, by layer."),
                ),
                migrations.AlterField(
                    model_name="contextreceipt",
                    name="text_hash",
                    field=models.CharField(help_text="SHA-256 hash of the rendered context.", max_length=64),
                ),
                migrations.AlterField(
                    model_name="contextreceipt",
                    name="tokens",
                    field=models.JSONField(help_text="Estimated number of tokens, by layer."),
                ),
                migrations.AlterField(
                    model_name="contextreceipt",
                    name="trimmed",
                    field=models.JSONField(
                        help_text="Items that were left out because they exceeded the token budget."
                    ),
                ),
                migrations.AlterField(
                    model_name="contradiction",
                    name="decision",
                    field=models.CharField(
                        blank=True,
                        choices=[("accepted", "Accepted"), ("declined", "Declined")],
                        default="",
                        help_text="The operator's answer. Blank if there is no answer yet.",
                        max_length=16,
                    ),
                ),
                migrations.AlterField(
                    model_name="contradiction",
                    name="reason",
                    field=models.CharField(
                        help_text="Why the platform isn't sure whether the later fact ended the earlier one.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="correctedturn",
                    name="right",
                    field=models.TextField(
                        blank=True, help_text="The correct words. If blank, the incorrect words are removed."
                    ),
                ),
                migrations.AlterField(
                    model_name="correctedturn",
                    name="wrong",
                    field=models.TextField(help_text="The incorrect words."),
                ),
                migrations.AlterField(
                    model_name="correction",
                    name="after",
                    field=models.TextField(
                        blank=True, help_text="Text of the fact after the correction. Blank if no text replaced it."
                    ),
                ),
                migrations.AlterField(
                    model_name="correction",
                    name="before",
                    field=models.TextField(help_text="Text of the fact before the correction."),
                ),
                migrations.AlterField(
                    model_name="correction",
                    name="changes",
                    field=models.JSONField(
                        default=list,
                        encoder=django.core.serializers.json.DjangoJSONEncoder,
                        help_text="Each changed row, with its state before the correction.",
                    ),
                ),
                migrations.AlterField(
                    model_name="correction",
                    name="valid_until",
                    field=models.DateTimeField(
                        blank=True, help_text="Of an ended fact: when it stopped being true.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="embeddingmodel",
                    name="document_prefix",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Prefix that is added to each stored text before it is embedded.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="embeddingmodel",
                    name="input_types",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Values of `input_type` that are sent with queries and with stored texts.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="embeddingmodel",
                    name="is_filled",
                    field=models.BooleanField(
                        db_default=False, default=False, help_text="Whether every text has a vector from this model."
                    ),
                ),
                migrations.AlterField(
                    model_name="embeddingmodel",
                    name="query_prefix",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Prefix that is added to each query before it is embedded.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="enginecall",
                    name="dropped_count",
                    field=models.PositiveIntegerField(
                        db_default=0,
                        default=0,
                        help_text="Number of sentences and items that were left out because the conversation doesn't "
                        "support them.",
                    ),
                ),
                migrations.AlterField(
                    model_name="enginecall",
                    name="dropped_reasons",
                    field=models.JSONField(
                        blank=True,
                        db_default={},
                        default=dict,
                        help_text="Number of items that were left out, by reason.",
                    ),
                ),
                migrations.AlterField(
                    model_name="enginecall",
                    name="is_part",
                    field=models.BooleanField(
                        db_default=False,
                        default=False,
                        help_text="Whether this row records one task of a combined call. The row of the call itself "
                        "has the tokens, cost and duration.",
                        verbose_name="part of a combined call",
                    ),
                ),
                migrations.AlterField(
                    model_name="enginecall",
                    name="kept_count",
                    field=models.PositiveIntegerField(
                        db_default=0, default=0, help_text="Number of sentences and items in the answer that were used."
                    ),
                ),
                migrations.AlterField(
                    model_name="entity",
                    name="external_id",
                    field=models.CharField(
                        blank=True,
                        editable=False,
                        help_text="The client's own id for the entity. Blank if the client gave none.",
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
                        help_text="The API key that added the entity (key:…). Blank if unknown.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="factembedding",
                    name="ask_again_at",
                    field=models.DateTimeField(
                        help_text="When a rejected text is sent again. If blank, it is sent with the next batch.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="factembedding",
                    name="refusal",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Latest error from the endpoint.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="factembedding",
                    name="refusals",
                    field=models.PositiveSmallIntegerField(
                        db_default=0, default=0, help_text="Number of times that the endpoint has rejected the text."
                    ),
                ),
                migrations.AlterField(
                    model_name="factembedding",
                    name="said_at",
                    field=models.DateTimeField(
                        help_text="When the text was said. The time is copied here to speed up searches."
                    ),
                ),
                migrations.AlterField(
                    model_name="factembedding",
                    name="vector",
                    field=pgvector.django.halfvec.HalfVectorField(
                        help_text="Vector of the text. Blank if the endpoint rejects the text.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="failuregroup",
                    name="error",
                    field=models.TextField(blank=True, help_text="Message of the latest error."),
                ),
                migrations.AlterField(
                    model_name="failuregroup",
                    name="place",
                    field=models.CharField(
                        blank=True,
                        help_text="The error that these failures have in common. Blank if an engine returned the "
                        "error.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="job",
                    name="held_since",
                    field=models.DateTimeField(blank=True, help_text="When the job started to wait.", null=True),
                ),
                migrations.AlterField(
                    model_name="job",
                    name="key",
                    field=models.ForeignKey(
                        blank=True,
                        db_index=False,
                        help_text="The API key that queued the job.",
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
                        blank=True, default=dict, help_text="The results of the job, or the reason why it was skipped."
                    ),
                ),
                migrations.AlterField(
                    model_name="job",
                    name="run_after",
                    field=models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="Earliest time at which the job can start. A backoff or an open circuit postpones "
                        "it.",
                    ),
                ),
                migrations.AlterField(
                    model_name="job",
                    name="task",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Name of the schedule or function that the job runs.",
                        max_length=100,
                    ),
                ),
                migrations.AlterField(
                    model_name="job",
                    name="trace",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="W3C `traceparent` of the request that queued the job.",
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
                        help_text="The worker that made the latest attempt. Blank if unknown.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="about_kind",
                    field=models.CharField(
                        choices=[("user", "User"), ("person", "Person"), ("agent", "Agent"), ("session", "Session")],
                        db_default="session",
                        default="session",
                        editable=False,
                        help_text="Whether the item is about its user, another person, the agent, or the topic of a "
                        "session.",
                        max_length=16,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="access_count",
                    field=models.PositiveIntegerField(
                        default=0, help_text="Number of times that recall has returned the item."
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="attribute",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        editable=False,
                        help_text="The attribute whose value the item states, such as home, work or name. Blank if "
                        "the item states no attribute.",
                        max_length=64,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="confidence",
                    field=models.FloatField(
                        blank=True,
                        editable=False,
                        help_text="How sure the engine was of the item, from 0 to 1. Blank if no confidence was given.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="corrected_at",
                    field=models.DateTimeField(
                        blank=True,
                        editable=False,
                        help_text="When this item replaced an item that was never true.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="ended_at",
                    field=models.DateTimeField(
                        blank=True,
                        editable=False,
                        help_text="Time of the statement or decision that ended the item.",
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
                        help_text="Who ended the item, such as key:… or operator:…. Blank if a later statement about "
                        "the same subject ended it.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="engine",
                    field=models.CharField(
                        blank=True,
                        help_text="Engine that wrote the item. Blank if an operator or the application wrote it.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="external_id",
                    field=models.CharField(
                        blank=True,
                        editable=False,
                        help_text="The client's own id for the item. Blank if the client gave none.",
                        max_length=255,
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="formed_at",
                    field=models.DateTimeField(
                        default=django.utils.timezone.now, help_text="When the statement was made."
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="is_candidate",
                    field=models.BooleanField(
                        db_default=False,
                        default=False,
                        editable=False,
                        help_text="Whether the item was learned from one person for a shard. Only that person sees "
                        "it. A release creates a separate item for others.",
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="is_pinned",
                    field=models.BooleanField(
                        default=False,
                        help_text="Whether the item is kept word for word. A pinned item is never consolidated, and "
                        "every context includes it.",
                        verbose_name="pinned",
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="is_wrong",
                    field=models.BooleanField(
                        db_default=False,
                        default=False,
                        editable=False,
                        help_text="Whether the item was corrected because it was never true.",
                        verbose_name="never true",
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="kind",
                    field=models.CharField(
                        choices=[
                            ("identity", "Identity"),
                            ("relationship", "Relationship"),
                            ("home", "Home"),
                            ("work", "Work"),
                            ("health", "Health"),
                            ("preference", "Preference"),
                            ("instruction", "Instruction"),
                            ("plan", "Plan"),
                            ("task", "Task"),
                            ("goal", "Goal"),
                            ("problem", "Problem"),
                            ("event", "Event"),
                            ("lesson", "Lesson"),
                            ("other", "Other"),
                        ],
                        db_default="other",
                        default="other",
                        help_text="What kind of information the item contains.",
                        max_length=16,
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
                        help_text="user_ids of other people whom the item is about. Being listed here doesn't give a "
                        "person access to the item.",
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="reviewed_at",
                    field=models.DateTimeField(
                        blank=True,
                        editable=False,
                        help_text="When an operator decided whether to release the candidate.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="shown_in",
                    field=models.ForeignKey(
                        blank=True,
                        db_index=False,
                        help_text="The first consolidation that received the item, whether or not the new text "
                        "contains it.",
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
                        help_text="The person from whom an item in a shard was learned. The item is deleted with "
                        "that person, even if the session was deleted earlier.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.userprofile",
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="speaker",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        editable=False,
                        help_text="Name or role of the speaker. Blank if the item was written directly.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="subject",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        editable=False,
                        help_text="The person or thing that has the attribute.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="valid_from",
                    field=models.DateTimeField(
                        blank=True, help_text="When the item became true. Blank if unknown.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="valid_until",
                    field=models.DateTimeField(
                        blank=True,
                        help_text="When the item stops or stopped being true. Blank if no end is known.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="worth",
                    field=models.FloatField(
                        db_default=0.0,
                        default=0.0,
                        editable=False,
                        help_text="How long the item is expected to stay true and useful, from 0 to 1.",
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
                        help_text="Who wrote the item directly, such as key:… or operator:…. Blank if an engine "
                        "wrote it or the author is unknown.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="agent_id",
                    field=models.CharField(
                        blank=True,
                        help_text="Agent that uses the stream. If blank, every agent uses it.",
                        max_length=255,
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
                        help_text="Application that owns the shard. A personal stream belongs to the application of "
                        "its person.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="sessions_app.application",
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="consolidation_model",
                    field=models.CharField(
                        blank=True,
                        help_text="Model that writes the consolidated text. If blank, ENGINE__MODEL is used.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="consolidation_prompt",
                    field=models.TextField(
                        blank=True,
                        help_text="Tells the engine how to merge observations into the text. If blank, observations "
                        "are never consolidated.",
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="consolidation_trigger",
                    field=models.PositiveSmallIntegerField(
                        default=5, help_text="A consolidation starts when this many new observations are waiting."
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="extraction_model",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Model that extracts facts and observations: one of "
                        "MEMORY_FORMATION__STREAM_MODELS. If blank, ENGINE__MODEL is used.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="extraction_prompt",
                    field=models.TextField(help_text="Tells the engine what to remember in this stream."),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="fact_buffer_max",
                    field=models.PositiveSmallIntegerField(
                        default=100,
                        help_text="Maximum number of facts in a context, newest first. Searches find all facts.",
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="name",
                    field=models.CharField(
                        blank=True, help_text="Name of the shard. Other streams have no name.", max_length=64
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="pinned_content",
                    field=models.TextField(
                        blank=True, help_text="Text that is kept word for word and placed before the consolidated text."
                    ),
                ),
                migrations.AlterField(
                    model_name="moment",
                    name="journey",
                    field=models.TextField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="The person's journey up to this moment. Only the last moment of a build has a "
                        "journey.",
                    ),
                ),
                migrations.AlterField(
                    model_name="momentembedding",
                    name="ask_again_at",
                    field=models.DateTimeField(
                        help_text="When a rejected text is sent again. If blank, it is sent with the next batch.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="momentembedding",
                    name="refusal",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Latest error from the endpoint.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="momentembedding",
                    name="refusals",
                    field=models.PositiveSmallIntegerField(
                        db_default=0, default=0, help_text="Number of times that the endpoint has rejected the text."
                    ),
                ),
                migrations.AlterField(
                    model_name="momentembedding",
                    name="said_at",
                    field=models.DateTimeField(
                        help_text="When the text was said. The time is copied here to speed up searches."
                    ),
                ),
                migrations.AlterField(
                    model_name="momentembedding",
                    name="vector",
                    field=pgvector.django.halfvec.HalfVectorField(
                        help_text="Vector of the text. Blank if the endpoint rejects the text.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="owntext",
                    name="places",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.PositiveIntegerField(),
                        help_text="Lines that the platform had served before, by number from 0. Blank if "
                        "the turn has no other text.",
                        null=True,
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="promptresource",
                    name="application",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="Application that has its own version of the prompt. If blank, the prompt is "
                        "site-wide.",
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
                        help_text="Version that was active before the current version.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="moments_app.promptversion",
                    ),
                ),
                migrations.AlterField(
                    model_name="promptresource",
                    name="uri",
                    field=models.CharField(
                        help_text="Address of the prompt, such as rem://prompts/moment-builder.", max_length=255
                    ),
                ),
                migrations.AlterField(
                    model_name="promptversion",
                    name="is_tried",
                    field=models.BooleanField(
                        db_default=False,
                        default=False,
                        editable=False,
                        help_text="Whether an operator has tried the version on a sample.",
                    ),
                ),
                migrations.AlterField(
                    model_name="release",
                    name="actor",
                    field=models.CharField(
                        help_text="The operator who released the item (operator:…).", max_length=255
                    ),
                ),
                migrations.AlterField(
                    model_name="release",
                    name="atom",
                    field=models.OneToOneField(
                        blank=True,
                        help_text="The item that others see.",
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
                        help_text="The release to the users of one agent that this release extends to the users of "
                        "every agent.",
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
                        help_text="The previous release, which has another wording.",
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
                        editable=False,
                        help_text="Signature of the wording, the stream and the time of creation.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="retracteditem",
                    name="is_rewritten",
                    field=models.BooleanField(
                        default=False, help_text="Whether the row was kept and rewritten without the withdrawn parts."
                    ),
                ),
                migrations.AlterField(
                    model_name="retracteditem",
                    name="model",
                    field=models.CharField(help_text="Label of the row's model.", max_length=64),
                ),
                migrations.AlterField(
                    model_name="retracteditem",
                    name="user",
                    field=models.ForeignKey(
                        help_text="The person whose memory the row belongs to. Blank if it belongs to a shard.",
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
                        help_text="When the retraction was made. The retracted turns record the same time.",
                    ),
                ),
                migrations.AlterField(
                    model_name="retraction",
                    name="item_ids",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.UUIDField(),
                        blank=True,
                        help_text="Ids of the retracted items that were written directly. Blank if turns were "
                        "retracted.",
                        null=True,
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="retraction",
                    name="result",
                    field=models.JSONField(
                        default=dict, help_text="Number of retracted turns, and number of withdrawn rows by kind."
                    ),
                ),
                migrations.AlterField(
                    model_name="retraction",
                    name="sequences",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        blank=True,
                        help_text="Sequence numbers of the retracted turns. Blank if the whole session was retracted.",
                        null=True,
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="retraction",
                    name="stream",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="Shard of the retracted items. Blank if they belong to a person.",
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
                        default=dict,
                        help_text="Rebuilds that were already waiting at the time of the retraction, by process.",
                    ),
                ),
                migrations.AlterField(
                    model_name="servedline",
                    name="hash",
                    field=models.BigIntegerField(help_text="Hash of the words in the line. See `served_text`."),
                ),
                migrations.AlterField(
                    model_name="servedline",
                    name="is_quote",
                    field=models.BooleanField(
                        help_text="Whether the line was served only as a verbatim quote of a person."
                    ),
                ),
                migrations.AlterField(
                    model_name="servedline",
                    name="served_on",
                    field=models.DateField(
                        db_index=True,
                        default=django.utils.timezone.localdate,
                        help_text="Month in which the line was last served.",
                    ),
                ),
                migrations.AlterField(
                    model_name="streamversion",
                    name="lines",
                    field=models.JSONField(
                        editable=False,
                        help_text="Primary keys of the observations in each line of the new text, or null for a line "
                        "that was written by hand. Blank if they are not recorded.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="summary",
                    name="facts",
                    field=models.JSONField(
                        blank=True,
                        default=list,
                        help_text="List of objects with the keys `fact` and `message_indexes`.",
                    ),
                ),
                migrations.AlterField(
                    model_name="summary",
                    name="source_message_ids",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        blank=True,
                        default=list,
                        help_text="Primary keys of the source turns.",
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="turnembedding",
                    name="ask_again_at",
                    field=models.DateTimeField(
                        help_text="When a rejected text is sent again. If blank, it is sent with the next batch.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="turnembedding",
                    name="refusal",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Latest error from the endpoint.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="turnembedding",
                    name="refusals",
                    field=models.PositiveSmallIntegerField(
                        db_default=0, default=0, help_text="Number of times that the endpoint has rejected the text."
                    ),
                ),
                migrations.AlterField(
                    model_name="turnembedding",
                    name="said_at",
                    field=models.DateTimeField(
                        help_text="When the text was said. The time is copied here to speed up searches."
                    ),
                ),
                migrations.AlterField(
                    model_name="turnembedding",
                    name="vector",
                    field=pgvector.django.halfvec.HalfVectorField(
                        help_text="Vector of the text. Blank if the endpoint rejects the text.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="vocabulary",
                    name="fact_words",
                    field=models.PositiveBigIntegerField(
                        default=0, help_text="Number of distinct words in each fact, summed over all facts."
                    ),
                ),
                migrations.AlterField(
                    model_name="webhookdelivery",
                    name="due_at",
                    field=models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="Earliest time of the next attempt. Blank if the event was sent, or if no further "
                        "attempt is made.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="webhookendpoint",
                    name="failures",
                    field=models.PositiveIntegerField(
                        default=0, editable=False, help_text="Number of consecutive failed attempts."
                    ),
                ),
                migrations.AlterField(
                    model_name="webhookendpoint",
                    name="url",
                    field=models.CharField(
                        help_text="URL to which events are sent.",
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
                        editable=False, help_text="Earliest time of the next attempt to send an event.", null=True
                    ),
                ),
            ]
        )
    ]
