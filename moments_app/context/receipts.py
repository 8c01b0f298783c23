"""Store receipts of contexts, and count the tokens of contexts per day.

A receipt stores every line of the context, and the source of each.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from pydantic import TypeAdapter

from moments_app.context.render import Rendered
from moments_app.models import ContextReceipt, ContextUsage
from moments_app.models.context_receipt import ContextTokens
from sessions_app.database.deferred import WriteBuffer
from sessions_app.models import Session, UserProfile
from sessions_app.security.encryption import seal, unseal


@dataclass
class StoredLine:
    """A line of a context with its displayed time. For speed, it isn't frozen (see `Item`)."""

    text: str
    tokens: int
    ref: str = ""
    why: str = ""
    role: str = ""
    speaker: str = ""
    time: datetime | None = None


@dataclass(frozen=True)
class StoredLayer:
    name: str
    tokens: int
    lines: list[StoredLine]

    @property
    def markup_tokens(self) -> int:
        return self.tokens - sum(line.tokens for line in self.lines)


@dataclass(frozen=True)
class StoredContext:
    query: str
    format: str
    plan: str
    applied: int  # the budget in tokens
    tokens: int
    is_degraded: bool  # whether memory was searched by words only, because the query had no vector
    layers: list[StoredLayer]
    context: Rendered

    @property
    def markup_tokens(self) -> int:
        return self.tokens - sum(layer.tokens for layer in self.layers)

    def sealed(self, context_id: UUID) -> bytes:
        return seal(_STORED.dump_json(self), str(context_id))

    @staticmethod
    def from_sealed(sealed: bytes | memoryview | None, context_id: UUID) -> "StoredContext | None":
        """Return the context in a receipt. Return None if the receipt has none, or if no key can decrypt it."""
        opened = unseal(sealed, str(context_id)) if sealed else None
        return _STORED.validate_json(opened) if opened else None

    def refs(self) -> Iterable[str]:
        return (line.ref for layer in self.layers for line in layer.lines if line.ref)


_STORED = TypeAdapter(StoredContext)


class ServedRecord(NamedTuple):
    receipt: ContextReceipt  # unsaved
    context: StoredContext
    application: int  # the application's primary key
    transcript_tokens: int  # the tokens of the session's whole transcript


def add_receipt(served: ServedRecord) -> None:
    waiting.add(served)


def _write(served_contexts: list[ServedRecord]) -> None:
    if settings.MEMORY_CONTEXT.receipt_days:
        _write_receipts(served_contexts)
    ContextUsage.objects.add(_counted(served_contexts))  # last, because it locks a row that other processes wait for


def _write_receipts(served_contexts: list[ServedRecord]) -> None:
    batch = [served.receipt for served in served_contexts]
    # Sessions and people may have been deleted in the meantime. Lock in the same order as an erasure, to prevent
    # deadlocks.
    UserProfile.objects.protect({r.user_id for r in batch})
    there = Session.objects.select_for_update(no_key=True).filter(pk__in={r.session_id for r in batch})
    kept = set(there.order_by("pk").values_list("pk", flat=True))
    for receipt, context, *_ in served_contexts:
        receipt.sealed = context.sealed(receipt.context_id)  # encrypted in this thread, to save time during the request
    ContextReceipt.objects.bulk_create([r for r in batch if r.session_id in kept], batch_size=500)


def _counted(served_contexts: list[ServedRecord]) -> dict[tuple[int, date], ContextTokens]:
    counted: dict[tuple[int, date], ContextTokens] = defaultdict(ContextTokens)
    for receipt, _, application, transcript_tokens in served_contexts:
        day = receipt.created_at.astimezone(UTC).date()
        counted[application, day] += ContextTokens(1, receipt.total_tokens, transcript_tokens)
    return counted


waiting = WriteBuffer("context-receipts", _write)
