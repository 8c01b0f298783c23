import django.contrib.postgres.fields
import django.core.serializers.json
import django.core.validators
import django.db.models.deletion
import django.utils.timezone
import pgvector.django.halfvec
from django.db import migrations, models

import moments_app.models.retraction
from sessions_app.migrations._state_only import StateOnly


class Migration(migrations.Migration):
    dependencies = [("moments_app", "0122_without_versions_of_texts")]

    operations = [
        StateOnly(
            state_operations=[
                migrations.AlterField(
                    model_name="circuit",
                    name="error",
                    field=models.TextField(blank=True, help_text="Message of the latest error."),
                ),
                migrations.AlterField(
                    model_name="circuit",
                    name="failures",
                    field=models.PositiveIntegerField(default=0, help_text="Number of consecutive failed calls."),
                ),
                migrations.AlterField(
                    model_name="circuit",
                    name="holds_all",
                    field=models.BooleanField(
                        default=False,
                        help_text="For an open circuit: whether the jobs of all people wait. If not, only the "
                        "jobs of one person wait.",
                    ),
                ),
                migrations.AlterField(
                    model_name="circuit",
                    name="is_probing",
                    field=models.BooleanField(
                        default=False, help_text="Whether a probe was sent and has not called the engine yet."
                    ),
                ),
                migrations.AlterField(
                    model_name="circuit",
                    name="probe",
                    field=models.BigIntegerField(
                        blank=True,
                        help_text="Primary key of the latest job that was sent as a probe. A probe calls the "
                        "engine to check whether the engine works again.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="circuit",
                    name="reason",
                    field=models.CharField(blank=True, help_text="Type of the latest error.", max_length=32),
                ),
                migrations.AlterField(
                    model_name="circuit",
                    name="since",
                    field=models.DateTimeField(
                        default=django.utils.timezone.now, help_text="When the circuit was last opened or closed."
                    ),
                ),
                migrations.AlterField(
                    model_name="contextreceipt",
                    name="after_sequence",
                    field=models.BigIntegerField(
                        blank=True,
                        help_text="Sequence number of the session's latest turn when the context was served. −1"
                        " if the session had no turns.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="contextreceipt",
                    name="refs",
                    field=models.JSONField(help_text="Addresses of the items in the context, grouped by layer."),
                ),
                migrations.AlterField(
                    model_name="contextreceipt",
                    name="tokens",
                    field=models.JSONField(help_text="Estimated number of tokens in each layer."),
                ),
                migrations.AlterField(
                    model_name="contextreceipt",
                    name="trimmed",
                    field=models.JSONField(
                        help_text="For each layer: the number of items and tokens that were left out, and the reason."
                    ),
                ),
                migrations.AlterField(
                    model_name="contradiction",
                    name="decision",
                    field=models.CharField(
                        blank=True,
                        choices=[("accepted", "Accepted"), ("declined", "Declined")],
                        default="",
                        help_text="Whether an operator accepted that the later fact ended the earlier fact. "
                        "Blank if no operator has decided.",
                        max_length=16,
                    ),
                ),
                migrations.AlterField(
                    model_name="contradiction",
                    name="reason",
                    field=models.CharField(
                        help_text="Why it is unclear whether the later fact ended the earlier fact.", max_length=255
                    ),
                ),
                migrations.AlterField(
                    model_name="correctedturn",
                    name="wrong",
                    field=models.TextField(help_text="The incorrect words in the turn."),
                ),
                migrations.AlterField(
                    model_name="correction",
                    name="changes",
                    field=models.JSONField(
                        default=list,
                        encoder=django.core.serializers.json.DjangoJSONEncoder,
                        help_text="All texts that the correction changed, each before and after the change.",
                    ),
                ),
                migrations.AlterField(
                    model_name="correction",
                    name="valid_until",
                    field=models.DateTimeField(
                        blank=True, help_text="For a fact that was ended: when the fact stopped being true.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="embeddingmodel",
                    name="document_prefix",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Prefix for stored texts that are sent to the embeddings endpoint.",
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
                        help_text="Values of the parameter `input_type` for queries and for stored texts, such "
                        "as search_query/search_document.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="embeddingmodel",
                    name="query_prefix",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Prefix for queries that are sent to the embeddings endpoint.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="enginecall",
                    name="dropped_count",
                    field=models.PositiveIntegerField(
                        db_default=0,
                        default=0,
                        help_text="Number of sentences and items in the engine's answer that were left out, for"
                        " example because the conversation doesn't support them.",
                    ),
                ),
                migrations.AlterField(
                    model_name="enginecall",
                    name="dropped_reasons",
                    field=models.JSONField(
                        blank=True,
                        db_default={},
                        default=dict,
                        help_text="For each reason: the number of sentences and items that were left out.",
                    ),
                ),
                migrations.AlterField(
                    model_name="enginecall",
                    name="is_part",
                    field=models.BooleanField(
                        db_default=False,
                        default=False,
                        help_text="Whether this row records one task of a call that combined several tasks. The"
                        " tokens, cost and duration are in the row of the combined call.",
                        verbose_name="part of a combined call",
                    ),
                ),
                migrations.AlterField(
                    model_name="enginecall",
                    name="kept_count",
                    field=models.PositiveIntegerField(
                        db_default=0,
                        default=0,
                        help_text="Number of sentences and items in the engine's answer that were used.",
                    ),
                ),
                migrations.AlterField(
                    model_name="factembedding",
                    name="ask_again_at",
                    field=models.DateTimeField(
                        help_text="When a rejected text will be sent again. If blank, the text is sent with the"
                        " next batch.",
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
                        help_text="The endpoint's latest error for the text. Blank if the endpoint accepted the text.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="factembedding",
                    name="said_at",
                    field=models.DateTimeField(
                        help_text="When the embedded text was said. The time is copied from the text to speed "
                        "up searches."
                    ),
                ),
                migrations.AlterField(
                    model_name="factembedding",
                    name="vector",
                    field=pgvector.django.halfvec.HalfVectorField(
                        help_text="Vector of the text. Blank if the endpoint rejected the text.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="failuregroup",
                    name="muted_causes",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(),
                        blank=True,
                        db_default=[],
                        default=list,
                        help_text="Keys of the muted incidents that the failure belongs to.",
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="failuregroup",
                    name="place",
                    field=models.CharField(
                        blank=True,
                        help_text="The error message that these failures have in common. Blank if an engine "
                        "returned the error.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="failuregroup",
                    name="process",
                    field=models.CharField(
                        help_text="The type of job that failed. For a call without a job: the purpose of the call.",
                        max_length=32,
                    ),
                ),
                migrations.AlterField(
                    model_name="job",
                    name="circuit",
                    field=models.ForeignKey(
                        blank=True,
                        db_index=False,
                        help_text="The open circuit that keeps the job on hold.",
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
                        help_text="The failure that ended the latest attempt.",
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
                        help_text="What the job waits for. Blank if the job isn't on hold.",
                        max_length=16,
                    ),
                ),
                migrations.AlterField(
                    model_name="job",
                    name="key",
                    field=models.ForeignKey(
                        blank=True,
                        db_index=False,
                        help_text="The API key that queued the job. Blank if no key queued the job.",
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
                        blank=True, default=dict, help_text="Results of the job, or the reason why the job was skipped."
                    ),
                ),
                migrations.AlterField(
                    model_name="job",
                    name="task",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Name of the schedule or function that the job runs. Blank for all other jobs.",
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
                        help_text="Trace of the request or job that queued this job, as a W3C `traceparent` or "
                        "a trace id.",
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
                        help_text="The worker process that made the latest attempt. Blank if unknown.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="knownperson",
                    name="key",
                    field=models.CharField(
                        help_text="Id of the person. Two people with the same name have different ids.", max_length=255
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="about",
                    field=models.ForeignKey(
                        blank=True,
                        db_index=False,
                        editable=False,
                        help_text="The known person whom the item is about. Blank if the item is not about a "
                        "known person.",
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="statements",
                        to="moments_app.knownperson",
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
                        help_text="What the item is about: the user, another person, the agent, or the topic of"
                        " a session.",
                        max_length=16,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="access_count",
                    field=models.PositiveIntegerField(
                        default=0, help_text="Number of times that a search has returned the item."
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
                        help_text="The attribute that the item states, such as home, work or name. Blank if the"
                        " item states no attribute.",
                        max_length=64,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="confidence",
                    field=models.FloatField(
                        blank=True,
                        editable=False,
                        help_text="The engine's confidence that the item is true, from 0 to 1. Blank if unknown.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="corrected_at",
                    field=models.DateTimeField(
                        blank=True,
                        editable=False,
                        help_text="When this item replaced a wrong item. Blank if this item is not a correction.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="ended_at",
                    field=models.DateTimeField(
                        blank=True,
                        editable=False,
                        help_text="When it became known that the item had ended. Blank if the item has not ended.",
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
                        help_text="What ended the item, such as an API key (key:…), an operator (operator:…) or"
                        " an engine (engine:…). Blank if the item has not ended, or was ended by a "
                        "later item about the same subject.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="engine",
                    field=models.CharField(
                        blank=True,
                        help_text="The engine that wrote the item. Blank if an operator or a client wrote the "
                        "item directly.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="formed_at",
                    field=models.DateTimeField(
                        default=django.utils.timezone.now, help_text="When the item was said or written."
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="is_candidate",
                    field=models.BooleanField(
                        db_default=False,
                        default=False,
                        editable=False,
                        help_text="For an item in a shard: whether the item is a candidate for a release. Only "
                        "the person from whom a candidate was learned can see the candidate. A "
                        "release creates a separate item for other people.",
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="is_pinned",
                    field=models.BooleanField(
                        default=False,
                        help_text="Jobs never change or consolidate a pinned item. Every context includes a "
                        "pinned item.",
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
                        help_text="Whether the item was corrected because it had never been true.",
                        verbose_name="never true",
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
                        help_text="The user_ids of other people whom the item is about. These people don't get "
                        "access to the item.",
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="reviewed_at",
                    field=models.DateTimeField(
                        blank=True,
                        editable=False,
                        help_text="When an operator decided whether to release the candidate. Blank if no "
                        "operator has decided.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="source_user",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="For an item in a shard: the person from whom the item was learned. When the "
                        "person is erased, the item is deleted.",
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
                        help_text="Name or role of the speaker whose words the item is based on. Blank if the "
                        "item was written directly.",
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
                        help_text="The person or thing that the item describes. Blank if unknown.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="valid_until",
                    field=models.DateTimeField(
                        blank=True, help_text="The item is true until this time. Blank if no end is known.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="memoryatom",
                    name="worth",
                    field=models.FloatField(
                        db_default=0.0,
                        default=0.0,
                        editable=False,
                        help_text="Estimate of how long the item stays true and useful, from 0 (shortest) to 1 "
                        "(longest).",
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
                        help_text="The API key (key:…) or operator (operator:…) that wrote the item directly. "
                        "Blank if an engine wrote the item, or if the author is unknown.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="agent_id",
                    field=models.CharField(
                        blank=True,
                        help_text="The agent that uses the stream. If blank, every agent uses the stream.",
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
                        help_text="The application that owns the shard. Blank if the stream is not a shard.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="sessions_app.application",
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="consolidated_max_words",
                    field=models.PositiveSmallIntegerField(
                        default=400, verbose_name="maximum words in the consolidated text"
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="consolidation_prompt",
                    field=models.TextField(
                        blank=True,
                        help_text="Prompt that tells the engine how to merge observations into the stream's "
                        "text. If blank, observations are never consolidated.",
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="consolidation_trigger",
                    field=models.PositiveSmallIntegerField(
                        default=5, help_text="Number of new observations after which a consolidation starts."
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="extraction_model",
                    field=models.CharField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Model that extracts facts and observations. The model must be listed in "
                        "MEMORY_FORMATION__STREAM_MODELS. If blank, ENGINE__MODEL is used.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="fact_buffer_max",
                    field=models.PositiveSmallIntegerField(
                        default=100,
                        help_text="Maximum number of facts that a context includes, newest first. Searches find"
                        " all facts.",
                        verbose_name="maximum facts in a context",
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="fact_max_words",
                    field=models.PositiveSmallIntegerField(default=50, verbose_name="maximum words in a fact"),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="name",
                    field=models.CharField(
                        blank=True, help_text="Name of the shard. Blank if the stream is not a shard.", max_length=64
                    ),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="observation_max_words",
                    field=models.PositiveSmallIntegerField(default=25, verbose_name="maximum words in an observation"),
                ),
                migrations.AlterField(
                    model_name="memorystream",
                    name="pinned_content",
                    field=models.TextField(
                        blank=True,
                        help_text="Text that is placed before the consolidated text. Consolidations don't "
                        "change this text.",
                    ),
                ),
                migrations.AlterField(
                    model_name="moment",
                    name="journey",
                    field=models.TextField(
                        blank=True,
                        db_default="",
                        default="",
                        help_text="Dated headlines of the person's latest moments, this moment last. Only the "
                        "last moment of each build has a journey.",
                    ),
                ),
                migrations.AlterField(
                    model_name="momentembedding",
                    name="ask_again_at",
                    field=models.DateTimeField(
                        help_text="When a rejected text will be sent again. If blank, the text is sent with the"
                        " next batch.",
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
                        help_text="The endpoint's latest error for the text. Blank if the endpoint accepted the text.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="momentembedding",
                    name="said_at",
                    field=models.DateTimeField(
                        help_text="When the embedded text was said. The time is copied from the text to speed "
                        "up searches."
                    ),
                ),
                migrations.AlterField(
                    model_name="momentembedding",
                    name="vector",
                    field=pgvector.django.halfvec.HalfVectorField(
                        help_text="Vector of the text. Blank if the endpoint rejected the text.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="owntext",
                    name="places",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.PositiveIntegerField(),
                        help_text="Numbers of the turn's lines that the platform had already served. The first "
                        "line has the number 0. Blank if the turn has no other text.",
                        null=True,
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="promptresource",
                    name="application",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="The application that the prompt belongs to. Blank if the prompt is site-wide.",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="sessions_app.application",
                    ),
                ),
                migrations.AlterField(
                    model_name="promptversion",
                    name="is_tried",
                    field=models.BooleanField(
                        db_default=False,
                        default=False,
                        editable=False,
                        help_text="Whether an operator has tried the version on sample sessions or streams.",
                    ),
                ),
                migrations.AlterField(
                    model_name="release",
                    name="narrower",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="For a release to the users of every agent: the earlier release to the users "
                        "of one agent.",
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
                        help_text="The earlier release whose wording this release replaces.",
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
                        help_text="Signature of the wording, the stream and the creation time.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="retracteditem",
                    name="is_rewritten",
                    field=models.BooleanField(
                        default=False,
                        help_text="Whether the row was rewritten without the withdrawn parts. If not, the row "
                        "was removed.",
                    ),
                ),
                migrations.AlterField(
                    model_name="retracteditem",
                    name="model",
                    field=models.CharField(
                        help_text="The Django model of the row, such as moments_app.moment.", max_length=64
                    ),
                ),
                migrations.AlterField(
                    model_name="retracteditem",
                    name="user",
                    field=models.ForeignKey(
                        help_text="The person to whom the row belongs. Blank if the row belongs to a shard.",
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
                        help_text="When the retraction was made. Retracted turns have the same time in `retracted_at`.",
                    ),
                ),
                migrations.AlterField(
                    model_name="retraction",
                    name="entity_ids",
                    field=django.contrib.postgres.fields.ArrayField(
                        base_field=models.UUIDField(),
                        blank=True,
                        help_text="Ids of the retracted tasks, goals and problems. Blank if turns were retracted.",
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
                        help_text="Ids of the retracted facts and observations, which a client or operator "
                        "wrote directly. Blank if turns were retracted.",
                        null=True,
                        size=None,
                    ),
                ),
                migrations.AlterField(
                    model_name="retraction",
                    name="result",
                    field=models.JSONField(
                        default=dict, help_text="Number of retracted turns, and number of withdrawn rows of each kind."
                    ),
                ),
                migrations.AlterField(
                    model_name="retraction",
                    name="stream",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="The shard that contained the retracted items. Blank if the retracted items "
                        "belonged to a person.",
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
                        help_text="For each process: parameters of rebuild jobs that were unfinished at the "
                        "time of the retraction.",
                    ),
                ),
                migrations.AlterField(
                    model_name="servedline",
                    name="hash",
                    field=models.BigIntegerField(help_text="Hash of the words in the line."),
                ),
                migrations.AlterField(
                    model_name="servedline",
                    name="is_quote",
                    field=models.BooleanField(help_text="Whether the line was always served as a quote from a turn."),
                ),
                migrations.AlterField(
                    model_name="servedline",
                    name="served_on",
                    field=models.DateField(
                        db_index=True,
                        default=django.utils.timezone.localdate,
                        help_text="Date on which the line was last served, accurate to 30 days.",
                    ),
                ),
                migrations.AlterField(
                    model_name="statementchange",
                    name="actor",
                    field=models.CharField(
                        help_text="What changed the statement, such as an API key (key:…), an operator "
                        "(operator:…) or a job (job:…).",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="statementchange",
                    name="before",
                    field=models.JSONField(
                        default=dict,
                        encoder=moments_app.models.retraction.ExactEncoder,
                        help_text="Names of the changed columns, with the values before the change.",
                    ),
                ),
                migrations.AlterField(
                    model_name="statementchange",
                    name="reason",
                    field=models.CharField(
                        blank=True,
                        help_text="Why the statement changed, such as a correction (correction:…) or a "
                        "retraction (retraction:…). Blank if the action is the only reason.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="statementchange",
                    name="user",
                    field=models.ForeignKey(
                        blank=True,
                        help_text="The person to whom the statement belongs. Blank if the statement belongs to "
                        "a shard.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.userprofile",
                    ),
                ),
                migrations.AlterField(
                    model_name="summary",
                    name="facts",
                    field=models.JSONField(
                        blank=True,
                        default=list,
                        help_text="Facts in the summary. Each fact has a text (`fact`) and the sequence numbers"
                        " of the source turns (`message_indexes`).",
                    ),
                ),
                migrations.AlterField(
                    model_name="turnembedding",
                    name="ask_again_at",
                    field=models.DateTimeField(
                        help_text="When a rejected text will be sent again. If blank, the text is sent with the"
                        " next batch.",
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
                        help_text="The endpoint's latest error for the text. Blank if the endpoint accepted the text.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="turnembedding",
                    name="said_at",
                    field=models.DateTimeField(
                        help_text="When the embedded text was said. The time is copied from the text to speed "
                        "up searches."
                    ),
                ),
                migrations.AlterField(
                    model_name="turnembedding",
                    name="vector",
                    field=pgvector.django.halfvec.HalfVectorField(
                        help_text="Vector of the text. Blank if the endpoint rejected the text.", null=True
                    ),
                ),
                migrations.AlterField(
                    model_name="vocabulary",
                    name="fact_words",
                    field=models.PositiveBigIntegerField(
                        default=0, help_text="Number of distinct words in each fact, added up over all facts."
                    ),
                ),
                migrations.AlterField(
                    model_name="webhookdelivery",
                    name="due_at",
                    field=models.DateTimeField(
                        default=django.utils.timezone.now,
                        help_text="Earliest time of the next attempt to send the event. Blank if the event was "
                        "sent, or if no more attempts will be made.",
                        null=True,
                    ),
                ),
                migrations.AlterField(
                    model_name="webhookdelivery",
                    name="error",
                    field=models.CharField(
                        blank=True,
                        help_text="Error of the latest attempt. Blank if the event was sent.",
                        max_length=255,
                    ),
                ),
                migrations.AlterField(
                    model_name="webhookendpoint",
                    name="failures",
                    field=models.PositiveIntegerField(
                        default=0, editable=False, help_text="Number of consecutive attempts that failed."
                    ),
                ),
                migrations.AlterField(
                    model_name="webhookendpoint",
                    name="url",
                    field=models.CharField(
                        help_text="The URL that receives the events.",
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
                        editable=False,
                        help_text="No event is sent before this time. Blank if events are sent at once.",
                        null=True,
                    ),
                ),
            ],
        ),
    ]
