"""Receipts of served contexts, and their tokens by application and day."""

from collections import defaultdict
from datetime import UTC, date
from typing import NamedTuple

from django.conf import settings

from moments_app.context.kept import KeptContext
from moments_app.models import ContextReceipt, ContextUsage
from moments_app.models.context_receipt import ContextTokens
from sessions_app.database.deferred_writes import WriteBehind
from sessions_app.models import Session, UserProfile


class Served(NamedTuple):
    """A served context.

    Args:
        receipt: the unsaved receipt.
        context: the context itself.
        application: primary key of the person's application.
        transcript_tokens: tokens of the session's whole transcript.
    """

    receipt: ContextReceipt
    context: KeptContext
    application: int
    transcript_tokens: int


def keep(served: Served) -> None:
    """Record a served context in the background."""
    waiting.note(served)


def _write(noted: list[Served]) -> None:
    if settings.MEMORY_CONTEXT.receipt_days:
        _write_receipts(noted)
    ContextUsage.objects.add(_counted(noted))  # last, because other processes wait for the row


def _write_receipts(noted: list[Served]) -> None:
    batch = [served.receipt for served in noted]
    # Sessions may have been deleted in the meantime, and people erased. Lock in the same order as an erasure.
    UserProfile.objects.hold({r.user_id for r in batch})
    there = Session.objects.select_for_update(no_key=True).filter(pk__in={r.session_id for r in batch})
    kept = set(there.order_by("pk").values_list("pk", flat=True))
    for receipt, context, *_ in noted:
        receipt.sealed = context.sealed(receipt.context_id)  # encrypted here, to save time during the request
    ContextReceipt.objects.bulk_create([r for r in batch if r.session_id in kept], batch_size=500)


def _counted(noted: list[Served]) -> dict[tuple[int, date], ContextTokens]:
    counted: dict[tuple[int, date], ContextTokens] = defaultdict(ContextTokens)
    for receipt, _, application, transcript_tokens in noted:
        day = receipt.created_at.astimezone(UTC).date()
        counted[application, day] += ContextTokens(1, receipt.total_tokens, transcript_tokens)
    return counted


waiting = WriteBehind("context-receipts", _write)
