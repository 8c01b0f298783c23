"""Receipts of served contexts, their tokens by application and day, and turns that repeat lines from contexts."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Self

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import connection, models
from django.db.models import Q
from django.utils import timezone

from sessions_app.models import Application, Session, UserProfile

# Sorted by key to avoid deadlocks.
_ADD_SQL = """
INSERT INTO moments_app_contextusage AS counted (application_id, day, contexts, context_tokens, transcript_tokens)
SELECT added.* FROM unnest(%s::bigint[], %s::date[], %s::bigint[], %s::bigint[], %s::bigint[])
    AS added (application_id, day, contexts, context_tokens, transcript_tokens)
WHERE EXISTS (SELECT FROM sessions_app_application WHERE id = added.application_id)
ORDER BY added.application_id, added.day
ON CONFLICT (application_id, day) DO UPDATE SET
    contexts = counted.contexts + excluded.contexts,
    context_tokens = counted.context_tokens + excluded.context_tokens,
    transcript_tokens = counted.transcript_tokens + excluded.transcript_tokens
"""
RECOGNIZED_FOR = timedelta(days=400)  # how long a served line is recognized in turns that repeat it
REFRESH_INTERVAL = timedelta(days=30)  # minimum time between two updates of a line's date


class ContextReceiptQuerySet(models.QuerySet["ContextReceipt"]):
    def for_session(self, session: Session) -> Self:
        return self.filter(user=session.user_id, session=session)

    def expired(self) -> Self:
        return self.filter(created_at__lt=timezone.now() - timedelta(days=settings.MEMORY_CONTEXT.receipt_days))


class ContextReceipt(models.Model):
    """A receipt of a context: addresses, sizes and hashes, and the encrypted context itself."""

    context_id = models.UUIDField(unique=True)
    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="+")
    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="context_receipts")
    query_hash = models.CharField(
        max_length=64, blank=True, help_text="SHA-256 hash of the query. Blank if there was no query."
    )
    refs = models.JSONField(help_text="Addresses of the items in the context, grouped by layer.")
    tokens = models.JSONField(help_text="Estimated number of tokens in each layer.")
    trimmed = models.JSONField(help_text="How many items and tokens of each layer were left out, and why.")
    text_hash = models.CharField(max_length=64, help_text="SHA-256 hash of the rendered context.")
    after_sequence = models.BigIntegerField(
        null=True,
        blank=True,
        help_text="Sequence number of the session's latest turn when the context was served. −1 if the "
        "session had no turns.",
    )
    sealed = models.BinaryField(null=True, blank=True, help_text="The encrypted context.")
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    objects = ContextReceiptQuerySet.as_manager()

    def __str__(self) -> str:
        return str(self.context_id)

    @property
    def total_tokens(self) -> int:
        return sum(self.tokens.values())


@dataclass(frozen=True)
class ContextTokens:
    """Counts of served contexts and their tokens."""

    contexts: int = 0
    context_tokens: int = 0
    transcript_tokens: int = 0  # tokens of the sessions' whole transcripts at the time of each context

    def __add__(self, other: "ContextTokens") -> "ContextTokens":
        return ContextTokens(
            self.contexts + other.contexts,
            self.context_tokens + other.context_tokens,
            self.transcript_tokens + other.transcript_tokens,
        )


class ContextUsageQuerySet(models.QuerySet["ContextUsage"]):
    def add(self, counted: Mapping[tuple[int, date], ContextTokens]) -> None:
        """Add counts with one statement. The keys are pairs of an application's primary key and a day in UTC."""
        rows = [
            (application, day, one.contexts, one.context_tokens, one.transcript_tokens)
            for (application, day), one in counted.items()
        ]
        with connection.cursor() as cursor:
            cursor.execute(_ADD_SQL, list(map(list, zip(*rows, strict=True))))


class ContextUsage(models.Model):
    application = models.ForeignKey(Application, on_delete=models.CASCADE, related_name="+", db_index=False)
    day = models.DateField(help_text="Day in UTC.")
    contexts = models.BigIntegerField()
    context_tokens = models.BigIntegerField()
    transcript_tokens = models.BigIntegerField()

    objects = ContextUsageQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["application", "day"], name="context_usage_unique")]
        indexes = [models.Index(fields=["day"], name="context_usage_day")]

    def __str__(self) -> str:
        return f"{self.day:%Y-%m-%d}"


class ServedLineQuerySet(models.QuerySet["ServedLine"]):
    def expired(self) -> Self:
        return self.filter(served_on__lt=timezone.localdate() - RECOGNIZED_FOR)


class ServedLine(models.Model):
    """The hash of a line that was served about a person. The text of the line is not stored."""

    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="+", db_index=False)
    hash = models.BigIntegerField(help_text="Hash of the words in the line.")
    is_quote = models.BooleanField(help_text="True if contexts contained the line only as part of a quoted turn.")
    served_on = models.DateField(
        default=timezone.localdate,
        db_index=True,
        help_text="Date on which a context last contained the line. It is updated at most every 30 days.",
    )

    objects = ServedLineQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "hash"], name="served_line_unique")]

    def __str__(self) -> str:
        return f"{self.hash:x}"


class OwnText(models.Model):
    """The lines of a turn that were served earlier in a context, for example because a model repeats them.

    They are recorded when the turn is appended, and never changed. The row refers to the turn by session and sequence,
    so it is still valid after the turn is archived and restored.
    """

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="own_texts", db_index=False)
    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="+")
    sequence = models.BigIntegerField()
    places = ArrayField(
        models.PositiveIntegerField(),
        null=True,
        help_text="Numbers (from 0) of the turn's lines that repeat an earlier context. Blank if all lines repeat an "
        "earlier context.",
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["session", "sequence"], name="own_text_unique"),
            models.CheckConstraint(condition=Q(sequence__gte=0), name="own_text_sequence_from_zero"),
        ]

    def __str__(self) -> str:
        return f"of turn {self.sequence}"
