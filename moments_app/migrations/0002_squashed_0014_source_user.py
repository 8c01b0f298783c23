"""What is made of the transcript: moments, summaries, streams, entities, and their words and vectors."""

import uuid

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.contrib.postgres.search
import django.db.models.deletion
import django.utils.timezone
import pgvector.django.halfvec
from django.db import migrations, models
from pgvector.django import VectorExtension

from moments_app.migrations._vector_search import nearest
from sessions_app.migrations._row_security import grant, text_search
from sessions_app.migrations._word_search import add_search_vector, recall
from sessions_app.row_security import protect


class Migration(migrations.Migration):
    replaces = [
        ("moments_app", "0002_initial"),
        ("moments_app", "0003_row_security"),
        ("moments_app", "0004_summary"),
        ("moments_app", "0005_entities_and_receipts"),
        ("moments_app", "0006_streams"),
        ("moments_app", "0007_search"),
        ("moments_app", "0008_embeddings"),
        ("moments_app", "0009_access"),
        ("moments_app", "0010_pins"),
        ("moments_app", "0011_summarised_sequence"),
        ("moments_app", "0012_exact_search"),
        ("moments_app", "0013_engine_call_day"),
        ("moments_app", "0014_source_user"),
    ]

    dependencies = [
        ("django_q", "0019_alter_task_options_alter_ormq_key_alter_ormq_lock_and_more"),
        ("moments_app", "0001_initial"),
        ("sessions_app", "0001_squashed_0006_lifecycle"),
    ]

    operations = [
        VectorExtension(),
        migrations.CreateModel(
            name="Summary",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "status",
                    models.CharField(
                        choices=[("processing", "Processing"), ("completed", "Completed"), ("failed", "Failed")],
                        default="processing",
                        max_length=16,
                    ),
                ),
                ("start_sequence", models.BigIntegerField()),
                ("end_sequence", models.BigIntegerField()),
                ("text", models.TextField(blank=True)),
                ("facts", models.JSONField(blank=True, default=list, help_text="List of {fact, message_indexes}.")),
                (
                    "source_message_ids",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(),
                        blank=True,
                        default=list,
                        help_text="The turns it was made of.",
                        size=None,
                    ),
                ),
                ("engine", models.CharField(blank=True, max_length=255)),
                ("generation_time_ms", models.PositiveIntegerField(blank=True, null=True)),
                ("error", models.TextField(blank=True)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
                ("completed_at", models.DateTimeField(blank=True, null=True)),
                (
                    "base",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.RESTRICT,
                        related_name="successors",
                        to="moments_app.summary",
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="summaries",
                        to="moments_app.job",
                    ),
                ),
                (
                    "prompt_version",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to="moments_app.promptversion",
                    ),
                ),
                (
                    "session",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="summaries",
                        to="sessions_app.session",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="summaries",
                        to="sessions_app.userprofile",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "summaries",
                "indexes": [
                    models.Index(
                        fields=["session", "user", "status", "-end_sequence", "-id"], name="summary_session_latest"
                    ),
                    models.Index(
                        condition=models.Q(("status", "processing")), fields=["created_at"], name="summary_processing"
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("status", "processing")),
                        fields=("session",),
                        name="summary_one_processing_per_session",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("start_sequence__lte", models.F("end_sequence"))),
                        name="summary_range_in_order",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ContextReceipt",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("context_id", models.UUIDField(unique=True)),
                (
                    "query_hash",
                    models.CharField(blank=True, help_text="SHA-256; blank without a query.", max_length=64),
                ),
                ("refs", models.JSONField(help_text="Addresses of the items, by layer.")),
                ("tokens", models.JSONField(help_text="Estimated tokens, by layer.")),
                ("trimmed", models.JSONField(help_text="What the budget had no room for.")),
                ("text_hash", models.CharField(help_text="SHA-256 of what was answered.", max_length=64)),
                ("created_at", models.DateTimeField(db_index=True, default=django.utils.timezone.now)),
                (
                    "session",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="context_receipts",
                        to="sessions_app.session",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="sessions_app.userprofile"
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Entity",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("entity_id", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                (
                    "kind",
                    models.CharField(
                        choices=[("task", "Task"), ("goal", "Goal"), ("problem", "Problem")], max_length=16
                    ),
                ),
                ("title", models.CharField(max_length=255)),
                ("body", models.TextField(blank=True)),
                (
                    "status",
                    models.CharField(
                        choices=[("open", "Open"), ("done", "Done"), ("dropped", "Dropped")],
                        default="open",
                        max_length=16,
                    ),
                ),
                ("due_at", models.DateTimeField(blank=True, null=True)),
                (
                    "search_vector",
                    models.GeneratedField(
                        db_persist=True,
                        expression=django.contrib.postgres.search.SearchVector("title", "body", config="english"),
                        output_field=django.contrib.postgres.search.SearchVectorField(),
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "source_session",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="entities",
                        to="sessions_app.session",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="entities",
                        to="sessions_app.userprofile",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "entities",
                "indexes": [
                    models.Index(fields=["user", "status", "-updated_at", "-id"], name="entity_user_latest"),
                    django.contrib.postgres.indexes.GinIndex(fields=["search_vector"], name="entity_search"),
                ],
            },
        ),
        migrations.CreateModel(
            name="EntityLink",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "relation",
                    models.CharField(
                        choices=[
                            ("blocks", "Blocks"),
                            ("part_of", "Part Of"),
                            ("relates_to", "Relates To"),
                            ("follows", "Follows"),
                        ],
                        default="relates_to",
                        max_length=32,
                    ),
                ),
                (
                    "from_entity",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="links_out",
                        to="moments_app.entity",
                    ),
                ),
                (
                    "to_entity",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="links_in", to="moments_app.entity"
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="+", to="sessions_app.userprofile"
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("from_entity", "to_entity", "relation"), name="entity_link_unique"),
                    models.CheckConstraint(
                        condition=models.Q(("from_entity", models.F("to_entity")), _negated=True),
                        name="entity_link_not_to_itself",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="MemoryStream",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("stream_id", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                (
                    "stream_type",
                    models.CharField(
                        choices=[("session", "Session"), ("user", "User"), ("agent", "Agent")], max_length=16
                    ),
                ),
                ("agent_id", models.CharField(blank=True, help_text="Blank: every agent.", max_length=255)),
                ("name", models.CharField(blank=True, help_text="Of a shard.", max_length=64)),
                ("is_active", models.BooleanField(default=True)),
                ("extraction_prompt", models.TextField(help_text="What it takes in.")),
                ("extracts_observations", models.BooleanField(default=True)),
                ("extracts_facts", models.BooleanField(default=True)),
                ("observation_min", models.PositiveSmallIntegerField(default=0)),
                ("observation_max", models.PositiveSmallIntegerField(default=5)),
                ("observation_max_words", models.PositiveSmallIntegerField(default=25)),
                ("fact_min", models.PositiveSmallIntegerField(default=0)),
                ("fact_max", models.PositiveSmallIntegerField(default=5)),
                ("fact_max_words", models.PositiveSmallIntegerField(default=50)),
                (
                    "consolidation_prompt",
                    models.TextField(blank=True, help_text="Blank: observations are never consolidated."),
                ),
                (
                    "consolidation_trigger",
                    models.PositiveSmallIntegerField(default=5, help_text="Waiting observations."),
                ),
                ("consolidated_max_words", models.PositiveSmallIntegerField(default=400)),
                (
                    "fact_buffer_max",
                    models.PositiveSmallIntegerField(default=100, help_text="More are evicted, oldest first."),
                ),
                ("consolidated_content", models.TextField(blank=True, help_text="Written anew by each consolidation.")),
                ("last_updated_at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "session",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="streams",
                        to="sessions_app.session",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="streams",
                        to="sessions_app.userprofile",
                    ),
                ),
                (
                    "consolidation_model",
                    models.CharField(blank=True, help_text="Blank: MEMORY_FORMATION__MODEL.", max_length=255),
                ),
                (
                    "pinned_content",
                    models.TextField(blank=True, help_text="Kept word for word; stands before the consolidated text."),
                ),
            ],
            options={
                "verbose_name": "memory stream",
                "indexes": [
                    models.Index(
                        condition=models.Q(("stream_type", "agent")), fields=["agent_id"], name="stream_shards"
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("stream_type", "agent_id", "user", "session", "name"),
                        name="stream_unique_in_scope",
                        nulls_distinct=False,
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("name", ""),
                                ("session__isnull", False),
                                ("stream_type", "session"),
                                ("user__isnull", False),
                            ),
                            models.Q(
                                ("name", ""),
                                ("session__isnull", True),
                                ("stream_type", "user"),
                                ("user__isnull", False),
                            ),
                            models.Q(
                                ("session__isnull", True),
                                ("stream_type", "agent"),
                                ("user__isnull", True),
                                models.Q(("name", ""), _negated=True),
                            ),
                            _connector="OR",
                        ),
                        name="stream_scope_fits_type",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("observation_min__lte", models.F("observation_max")),
                            ("fact_min__lte", models.F("fact_max")),
                        ),
                        name="stream_limits_in_order",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="StreamVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("content_before", models.TextField(blank=True)),
                ("content_after", models.TextField()),
                ("engine", models.CharField(max_length=255)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("undone_at", models.DateTimeField(blank=True, null=True)),
                (
                    "job",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="moments_app.job",
                    ),
                ),
                (
                    "stream",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="versions",
                        to="moments_app.memorystream",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.userprofile",
                    ),
                ),
            ],
            options={
                "ordering": ["-id"],
            },
        ),
        migrations.CreateModel(
            name="MemoryAtom",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("atom_id", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                (
                    "atom_type",
                    models.CharField(choices=[("observation", "Observation"), ("fact", "Fact")], max_length=16),
                ),
                ("content", models.TextField()),
                ("content_hash", models.CharField(editable=False, max_length=64)),
                (
                    "state",
                    models.CharField(
                        choices=[("active", "Active"), ("absorbed", "Absorbed"), ("evicted", "Evicted")],
                        default="active",
                        max_length=16,
                    ),
                ),
                ("formed_at", models.DateTimeField(default=django.utils.timezone.now, help_text="When it was said.")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "source_message_ids",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.BigIntegerField(), blank=True, default=list, size=None
                    ),
                ),
                (
                    "engine",
                    models.CharField(
                        blank=True, help_text="Blank: written by an operator or the application.", max_length=255
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="atoms",
                        to="moments_app.job",
                    ),
                ),
                (
                    "prompt_version",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to="moments_app.promptversion",
                    ),
                ),
                (
                    "source_session",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="atoms",
                        to="sessions_app.session",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        blank=True,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="atoms",
                        to="sessions_app.userprofile",
                    ),
                ),
                (
                    "stream",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="atoms",
                        to="moments_app.memorystream",
                    ),
                ),
                (
                    "absorbed_in",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="absorbed",
                        to="moments_app.streamversion",
                    ),
                ),
                (
                    "access_count",
                    models.PositiveIntegerField(default=0, help_text="Times that recall has returned it."),
                ),
                ("last_accessed_at", models.DateTimeField(blank=True, null=True)),
                (
                    "is_pinned",
                    models.BooleanField(
                        default=False,
                        help_text="Kept word for word: neither consolidated nor evicted.",
                        verbose_name="pinned",
                    ),
                ),
                (
                    "source_user",
                    models.ForeignKey(
                        blank=True,
                        help_text="Who said what a shard has: it goes with that person, even if the session went "
                        "before.",
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.userprofile",
                    ),
                ),
            ],
            options={
                "verbose_name": "memory atom",
                "indexes": [
                    models.Index(fields=["stream", "state", "atom_type", "formed_at", "id"], name="atom_stream_order"),
                    models.Index(fields=["user", "-formed_at", "-id"], name="atom_user_newest"),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("state", "active")),
                        fields=("stream", "content_hash"),
                        name="atom_unique_while_active",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Vocabulary",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("fact_count", models.PositiveBigIntegerField(default=0)),
                ("moment_count", models.PositiveBigIntegerField(default=0)),
                ("turn_count", models.PositiveBigIntegerField(default=0)),
                (
                    "fact_words",
                    models.PositiveBigIntegerField(default=0, help_text="Different words of each fact, added up."),
                ),
                ("moment_words", models.PositiveBigIntegerField(default=0)),
                ("turn_words", models.PositiveBigIntegerField(default=0)),
                ("counted_at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "stream",
                    models.OneToOneField(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="vocabulary",
                        to="moments_app.memorystream",
                    ),
                ),
                (
                    "user",
                    models.OneToOneField(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="vocabulary",
                        to="sessions_app.userprofile",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "vocabularies",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("user__isnull", True), ("stream__isnull", True), _connector="XOR"),
                        name="vocabulary_of_person_or_shard",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Word",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("stem", models.TextField()),
                ("facts", models.PositiveIntegerField(default=0)),
                ("moments", models.PositiveIntegerField(default=0)),
                ("turns", models.PositiveIntegerField(default=0)),
                (
                    "user",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="sessions_app.userprofile",
                    ),
                ),
                (
                    "vocabulary",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="words",
                        to="moments_app.vocabulary",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("vocabulary", "stem"), name="word_unique_in_vocabulary")
                ],
            },
        ),
        migrations.CreateModel(
            name="EmbeddingModel",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=255)),
                ("dimensions", models.PositiveSmallIntegerField()),
                ("is_active", models.BooleanField(default=False, help_text="Searches read its vectors.")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "verbose_name": "embedding model",
                "constraints": [
                    models.UniqueConstraint(fields=("name", "dimensions"), name="embedding_model_unique"),
                    models.UniqueConstraint(
                        condition=models.Q(("is_active", True)),
                        fields=("is_active",),
                        name="embedding_model_one_active",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="FactEmbedding",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "said_at",
                    models.DateTimeField(help_text="When its text was said: copied, for searches read no other table."),
                ),
                (
                    "vector",
                    pgvector.django.halfvec.HalfVectorField(
                        help_text="Blank: the endpoint refuses this text.", null=True
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "model",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="moments_app.embeddingmodel",
                    ),
                ),
                (
                    "source",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="embeddings",
                        to="moments_app.memoryatom",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.userprofile",
                    ),
                ),
            ],
            options={
                "abstract": False,
                "indexes": [models.Index(fields=["user", "model"], name="factembedding_user")],
                "constraints": [models.UniqueConstraint(fields=("source", "model"), name="factembedding_unique")],
            },
        ),
        migrations.CreateModel(
            name="MomentEmbedding",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "said_at",
                    models.DateTimeField(help_text="When its text was said: copied, for searches read no other table."),
                ),
                (
                    "vector",
                    pgvector.django.halfvec.HalfVectorField(
                        help_text="Blank: the endpoint refuses this text.", null=True
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "model",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="moments_app.embeddingmodel",
                    ),
                ),
                (
                    "source",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="embeddings",
                        to="moments_app.moment",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.userprofile",
                    ),
                ),
            ],
            options={
                "abstract": False,
                "indexes": [models.Index(fields=["user", "model"], name="momentembedding_user")],
                "constraints": [models.UniqueConstraint(fields=("source", "model"), name="momentembedding_unique")],
            },
        ),
        migrations.CreateModel(
            name="TurnEmbedding",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "said_at",
                    models.DateTimeField(help_text="When its text was said: copied, for searches read no other table."),
                ),
                (
                    "vector",
                    pgvector.django.halfvec.HalfVectorField(
                        help_text="Blank: the endpoint refuses this text.", null=True
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "model",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="moments_app.embeddingmodel",
                    ),
                ),
                (
                    "source",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="embeddings",
                        to="sessions_app.message",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="sessions_app.userprofile",
                    ),
                ),
            ],
            options={
                "abstract": False,
                "indexes": [models.Index(fields=["user", "model"], name="turnembedding_user")],
                "constraints": [models.UniqueConstraint(fields=("source", "model"), name="turnembedding_unique")],
            },
        ),
        migrations.AddField(
            model_name="job",
            name="session",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="jobs",
                to="sessions_app.session",
            ),
        ),
        migrations.AddField(
            model_name="job",
            name="user",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="jobs",
                to="sessions_app.userprofile",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(condition=models.Q(("status", "queued")), fields=["run_after"], name="job_queued"),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("status", "processing")), fields=["heartbeat_at"], name="job_processing"
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(fields=["user", "-queued_at", "-id"], name="job_user_newest"),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(fields=["status", "-id"], name="job_status_newest"),
        ),
        migrations.AddField(
            model_name="job",
            name="stream",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="jobs",
                to="moments_app.memorystream",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.UniqueConstraint(
                condition=models.Q(("status__in", ["queued", "processing"])),
                fields=("process", "user", "session", "stream"),
                name="job_one_open_per_subject",
                nulls_distinct=False,
            ),
        ),
        migrations.AddField(
            model_name="enginecall",
            name="job",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="engine_calls",
                to="moments_app.job",
            ),
        ),
        migrations.AddField(
            model_name="enginecall",
            name="prompt_version",
            field=models.ForeignKey(
                blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to="moments_app.promptversion"
            ),
        ),
        migrations.AddIndex(
            model_name="enginecall",
            index=models.Index(fields=["engine", "-created_at", "-id"], name="engine_call_newest"),
        ),
        migrations.AddIndex(
            model_name="enginecall",
            index=models.Index(fields=["-created_at"], include=("cost_usd",), name="engine_call_day"),
        ),
        migrations.AddField(
            model_name="moment",
            name="job",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="moments",
                to="moments_app.job",
            ),
        ),
        migrations.AddField(
            model_name="moment",
            name="source_session",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="moments",
                to="sessions_app.session",
            ),
        ),
        migrations.AddField(
            model_name="moment",
            name="user",
            field=models.ForeignKey(
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="moments",
                to="sessions_app.userprofile",
            ),
        ),
        migrations.AddField(
            model_name="moment",
            name="prompt_version",
            field=models.ForeignKey(
                blank=True, null=True, on_delete=django.db.models.deletion.SET_NULL, to="moments_app.promptversion"
            ),
        ),
        migrations.AddIndex(
            model_name="moment",
            index=models.Index(fields=["user", "-created_at", "-id"], name="moment_user_newest"),
        ),
        migrations.AddIndex(
            model_name="moment",
            index=django.contrib.postgres.indexes.GinIndex(fields=["topic_tags"], name="moment_topics"),
        ),
        migrations.AddIndex(
            model_name="moment",
            index=django.contrib.postgres.indexes.GinIndex(fields=["search_vector"], name="moment_search"),
        ),
        migrations.AddConstraint(
            model_name="moment",
            constraint=models.UniqueConstraint(fields=("user", "key"), name="moment_key_unique_for_user"),
        ),
        migrations.AddConstraint(
            model_name="moment",
            constraint=models.CheckConstraint(
                condition=models.Q(("first_sequence__lte", models.F("last_sequence"))), name="moment_range_in_order"
            ),
        ),
        migrations.AddField(
            model_name="moment",
            name="updated_at",
            field=models.DateTimeField(auto_now=True),
        ),
        migrations.AddField(
            model_name="promptversion",
            name="resource",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="versions", to="moments_app.promptresource"
            ),
        ),
        migrations.AddConstraint(
            model_name="promptversion",
            constraint=models.UniqueConstraint(fields=("resource", "number"), name="prompt_version_number_unique"),
        ),
        migrations.AddField(
            model_name="promptresource",
            name="active_version",
            field=models.ForeignKey(
                blank=True,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="active_in",
                to="moments_app.promptversion",
            ),
        ),
        migrations.AlterField(
            model_name="promptresource",
            name="purpose",
            field=models.CharField(
                choices=[
                    ("moment-builder", "Moment Builder"),
                    ("rolling-summary", "Rolling Summary"),
                    ("memory-extraction", "Memory Extraction"),
                    ("stream-consolidation", "Stream Consolidation"),
                    ("session-digest", "Session Digest"),
                    ("recall-query", "Recall Query"),
                    ("memory-policy", "Memory Policy"),
                ],
                max_length=32,
            ),
        ),
        protect("moments_app_moment"),
        # A shard's rows belong to no person: whoever talks to its agent sees them, and the jobs about it.
        protect("moments_app_job", shared=True),
        protect("moments_app_memorystream", shared=True),
        protect("moments_app_memoryatom", shared=True),
        protect("moments_app_streamversion", shared=True),
        protect("moments_app_factembedding", shared=True),
        protect("moments_app_momentembedding"),
        protect("moments_app_turnembedding"),
        protect("moments_app_summary"),
        protect("moments_app_contextreceipt"),
        protect("moments_app_entity"),
        protect("moments_app_entitylink"),
        protect("moments_app_vocabulary", privileges="SELECT", shared=True),
        protect("moments_app_word", privileges="SELECT", shared=True),
        # Deleting a session deletes its jobs; what their calls cost stays on record.
        grant("moments_app_enginecall", "SELECT (id, job_id), UPDATE (job_id)"),
        grant("django_q_ormq", "SELECT (id), INSERT"),
        # The policy that stands first in a context is a prompt resource.
        grant("moments_app_promptresource", "SELECT"),
        grant("moments_app_promptversion", "SELECT"),
        grant("moments_app_embeddingmodel", "SELECT"),
        text_search("moments_app_entity"),
        add_search_vector("moments_app_memoryatom", "content"),
        recall(
            "moments_app_memoryatom",
            scope="COALESCE('u' || user_id, 's' || stream_id)",
            time="formed_at",
            condition="state = 'active' AND atom_type = 'fact'",
        ),
        recall("moments_app_moment", scope="'u' || user_id", time="ends_at"),
        nearest("moments_app_factembedding", shards_of="moments_app_memoryatom"),
        nearest("moments_app_momentembedding"),
        nearest("moments_app_turnembedding"),
    ]
