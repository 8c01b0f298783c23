"""Receipts of served contexts, which record what the model received."""

from datetime import timedelta
from typing import Self

from django.conf import settings
from django.db import models
from django.utils import timezone

from sessions_app.models import Session, UserProfile


class ContextReceiptQuerySet(models.QuerySet["ContextReceipt"]):
    def for_session(self, session: Session) -> Self:
        """Return the receipts of a session of one person."""
        return self.filter(user=session.user_id, session=session)

    def expired(self) -> Self:
        """Return receipts older than `MEMORY_CONTEXT__RECEIPT_DAYS`."""
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
    trimmed = models.JSONField(
        help_text="Number of items and tokens that were left out of each layer, with the reason."
    )
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
        """The tokens of all layers."""
        return sum(self.tokens.values())
