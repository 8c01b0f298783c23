"""Vectors for semantic search, one per text and model.

Several models may have vectors at the same time. So operators can fill a second model while the first is in use, and
then switch without a gap. Vectors of different models are never compared, because each model has its own indexes.
"""

from datetime import timedelta
from typing import Any, Self

from django.conf import settings
from django.db import connection, models, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models import Count, Q, Value
from django.utils import timezone
from pgvector.django import HalfVectorField

from memoryproject.embeddings import Recipe
from moments_app.models.atom import MemoryAtom
from moments_app.models.job import Job
from moments_app.models.moment import Moment
from moments_app.models.stored_item import StoredItem
from moments_app.models.stream import MemoryStream
from sessions_app.database.sql import insert_if_missing
from sessions_app.models import Message, UserProfile

FIRST_WAIT = timedelta(hours=1)  # delay of the first retry of a rejected text
LONGEST_WAIT = timedelta(days=30)
RECIPE = Recipe._fields


class EmbeddingModelQuerySet(models.QuerySet["EmbeddingModel"]):
    def active(self) -> Self:
        return self.filter(is_active=True)

    def ensure(self, name: str, dimensions: int, *, concurrently: bool = False) -> "EmbeddingModel":
        """Return the row of a model with the configured recipe. Create the row and its indexes if they are missing.

        The first model becomes active. If `concurrently`, don't block writers; this is not possible within a
        transaction.
        """
        fields = settings.EMBEDDING.recipe_of(name, dimensions)._asdict()
        insert_if_missing(EmbeddingModel(**fields, is_active=not self.active().exists()))
        model = self.get(**fields)
        model.build_indexes(concurrently=concurrently)
        return model

    def in_use(self) -> "EmbeddingModel":
        """Return the model for new texts: the model of the embedded server, or otherwise the active one.

        The embedded server's vectors cost nothing, so a change of its recipe takes effect without a command.
        """
        conf, active = settings.EMBEDDING, self.active().first()
        if active and (active.recipe == conf.recipe or not conf.is_embedded):
            return active
        return self.ensure(conf.model, conf.dimensions)

    def refused_by_kind(self) -> dict[str, int]:
        """Return the number of texts rejected by the endpoints of these models, keyed by kind of text.

        Uses one index-only query. Without a model, all counts are 0.
        """
        counts = [
            embedding.objects.filter(model__in=self.values("pk"), vector=None)
            .order_by()
            .values(kind=Value(kind))
            .annotate(n=Count("*"))
            .values_list("kind", "n")
            for kind, embedding in KINDS.items()
        ]
        return dict.fromkeys(KINDS, 0) | dict(counts[0].union(*counts[1:], all=True))


class EmbeddingModel(models.Model):
    name = models.CharField(max_length=255)
    dimensions = models.PositiveSmallIntegerField()
    query_prefix = models.CharField(
        max_length=255,
        blank=True,
        default="",
        db_default="",
        help_text="Prefix for queries that are sent to the embeddings endpoint.",
    )
    document_prefix = models.CharField(
        max_length=255,
        blank=True,
        default="",
        db_default="",
        help_text="Prefix for stored texts that are sent to the embeddings endpoint.",
    )
    input_types = models.CharField(
        max_length=255,
        blank=True,
        default="",
        db_default="",
        help_text="Values of the parameter `input_type` for queries and for stored texts, such as "
        "search_query/search_document.",
    )
    is_filled = models.BooleanField(
        default=False, db_default=False, help_text="Whether every text has a vector from this model."
    )
    is_active = models.BooleanField(default=False, help_text="Whether searches use this model.")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = EmbeddingModelQuerySet.as_manager()

    class Meta:
        verbose_name = "embedding model"
        constraints = [
            models.UniqueConstraint(fields=RECIPE, name="embedding_model_unique_recipe"),
            models.UniqueConstraint(
                fields=["is_active"], condition=Q(is_active=True), name="embedding_model_one_active"
            ),
        ]

    def __str__(self) -> str:
        settings_used = [f"{getattr(self, field)!r}" for field in RECIPE[2:] if getattr(self, field)]
        return ", ".join([self.name, f"{self.dimensions} dimensions", *settings_used])

    @property
    def recipe(self) -> Recipe:
        return Recipe(*(getattr(self, field) for field in RECIPE))

    @property
    def is_served(self) -> bool:
        """True unless the embedded server is used and serves another model."""
        conf = settings.EMBEDDING
        return not conf.is_embedded or (self.name, self.dimensions) == (conf.model, conf.dimensions)

    @transaction.atomic
    def activate(self) -> None:
        EmbeddingModel.objects.active().exclude(pk=self.pk).update(is_active=False)
        EmbeddingModel.objects.filter(pk=self.pk).update(is_active=True)

    def retry_refused(self) -> int:
        """Make all rejected texts due. Return their number."""
        return sum(kind.objects.refused(self).update(ask_again_at=None) for kind in KINDS.values())

    def build_indexes(self, *, concurrently: bool) -> None:
        """Build missing nearest-neighbor indexes. Rebuild invalid ones, which interrupted builds leave behind.

        If `concurrently`, don't block writers. Only the tables' owner can do this, and not within a transaction.
        """
        for table in (kind._meta.db_table for kind in KINDS.values()):
            with connection.cursor() as cursor:
                if concurrently:
                    self._build_concurrently(cursor, table)
                else:
                    cursor.execute("SELECT index_vectors(%s, %s)", [table, self.pk])

    def _build_concurrently(self, cursor: CursorWrapper, table: str) -> None:
        index = f"{table}_nearest_{self.pk}"
        cursor.execute("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)", [index])
        found = cursor.fetchone()
        if found == (True,):
            return
        if found:
            cursor.execute(f"DROP INDEX {index}")
        cursor.execute(
            f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {index} ON {table} "
            f"USING hnsw ((vector::halfvec({self.dimensions})) halfvec_cosine_ops) WHERE model_id = {self.pk}"
        )


class EmbeddingQuerySet(models.QuerySet[Any]):
    def refused(self, model: EmbeddingModel) -> Self:
        return self.filter(model=model, vector=None)

    def due_again(self, model: EmbeddingModel) -> Self:
        return self.refused(model).filter(Q(ask_again_at=None) | Q(ask_again_at__lte=timezone.now()))


class Embedding(models.Model):
    """A model's vector of a text, or a record that the endpoint rejected the text.

    A rejected text is sent again automatically, at growing intervals, because the endpoint may accept it later.
    """

    model = models.ForeignKey(EmbeddingModel, on_delete=models.CASCADE, related_name="+", db_index=False)
    user = models.ForeignKey(  # blank for facts of a shard and an application's own items
        UserProfile, null=True, on_delete=models.CASCADE, related_name="+", db_index=False
    )
    said_at = models.DateTimeField(
        help_text="Time when the embedded text was said, copied from its source to speed up searches."
    )
    vector = HalfVectorField(null=True, help_text="Vector of the text. Blank if the endpoint rejected the text.")
    refusal = models.CharField(
        max_length=255,
        blank=True,
        default="",
        db_default="",
        help_text="The endpoint's latest error for the text. Blank if the endpoint accepted the text.",
    )
    refusals = models.PositiveSmallIntegerField(
        default=0, db_default=0, help_text="Number of times that the endpoint has rejected the text."
    )
    ask_again_at = models.DateTimeField(
        null=True, help_text="When a rejected text will be sent again. If blank, the text is sent with the next batch."
    )
    created_at = models.DateTimeField(auto_now_add=True)

    objects = EmbeddingQuerySet.as_manager()

    class Meta:
        abstract = True
        constraints = [models.UniqueConstraint(fields=["source", "model"], name="%(class)s_unique")]
        # For a person with few vectors, reading all of them with this index is exact, and faster than the
        # nearest-neighbor index.
        indexes = [
            models.Index(fields=["user", "model"], name="%(class)s_user"),
            models.Index(fields=["model", "ask_again_at"], condition=Q(vector=None), name="%(class)s_refused"),
        ]

    def __str__(self) -> str:
        return f"{self._meta.verbose_name} {self.pk}"

    def refuse(self, words: str) -> None:
        """Record a rejection of the text by the endpoint, and when to resend it: after 1 hour, 4 hours, and so on."""
        wait = min(FIRST_WAIT * 4 ** min(self.refusals, 10), LONGEST_WAIT)
        self.refusal, self.refusals, self.ask_again_at = words[:255], self.refusals + 1, timezone.now() + wait


class FactEmbedding(Embedding):
    source = models.ForeignKey(MemoryAtom, on_delete=models.CASCADE, related_name="embeddings", db_index=False)


class MomentEmbedding(Embedding):
    """A vector of a moment's summary and detail."""

    source = models.ForeignKey(Moment, on_delete=models.CASCADE, related_name="embeddings", db_index=False)


class TurnEmbedding(Embedding):
    source = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="embeddings", db_index=False)


class ItemEmbedding(Embedding):
    """A vector of a stored item's text. A trigger deletes it when the text changes."""

    source = models.ForeignKey(StoredItem, on_delete=models.CASCADE, related_name="embeddings", db_index=False)


AnyEmbedding = FactEmbedding | MomentEmbedding | TurnEmbedding | ItemEmbedding
KINDS: dict[str, type[AnyEmbedding]] = {
    "fact": FactEmbedding,
    "moment": MomentEmbedding,
    "turn": TurnEmbedding,
    "item": ItemEmbedding,
}


def owner_arguments(row: Job | MemoryStream | MemoryAtom | Moment | StoredItem) -> dict[str, Any]:
    """Return the arguments for `Job.objects.request` that queue a job about this row's person or shard."""
    if row.user_id is None and (stream := row if isinstance(row, MemoryStream) else getattr(row, "stream", None)):
        return {"stream": stream}
    return {"user_id": row.user_id}
