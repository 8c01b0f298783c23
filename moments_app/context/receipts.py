"""Record the lines of served contexts and search results, store receipts of contexts, and count their tokens per day.

A receipt stores every line of the context, and the source of each. Each time a fact is returned, its counter is
incremented, so operators see which facts are useful.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.utils import timezone
from pydantic import TypeAdapter

from moments_app.context.item import Item, PricedItem, Rendered
from moments_app.models import ContextReceipt, ContextUsage
from moments_app.models.context_receipt import ContextTokens
from moments_app.recall.results import Result
from moments_app.turns import platform_text
from sessions_app.database.deferred_writes import WriteBuffer
from sessions_app.models import Session, UserProfile
from sessions_app.security.encryption import seal, unseal

_ATOMS = "rem://atoms/"
# Lock the rows in order, to prevent deadlocks between processes.
_COUNT_SQL = """
WITH accessed AS (SELECT unnest(%s::uuid[]) AS atom_id, unnest(%s::timestamptz[]) AS at),
counted AS (SELECT atom_id, count(*) AS times, max(at) AS latest FROM accessed GROUP BY atom_id),
locked AS (
    SELECT id, times, latest FROM moments_app_memoryatom atom JOIN counted USING (atom_id)
    ORDER BY id FOR NO KEY UPDATE OF atom
)
UPDATE moments_app_memoryatom atom SET access_count = access_count + times, last_accessed_at = latest
FROM locked WHERE atom.id = locked.id
"""


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


def note_context(user: UserProfile, context: Rendered, layers: Mapping[str, Sequence[PricedItem]], query: str) -> None:
    """Record a context as served, in the background. If `context` is blank (format `json`), record its items."""
    items = [(name, priced.item) for name, layer in layers.items() for priced in layer]
    texts = [context] if isinstance(context, str) else [message["content"] or "" for message in context]
    quoted = [item.text for name, item in items if _is_quote(name, item)]
    platform_text.note_served(user, texts if context else [item.text for _name, item in items], quoted, query)


def _is_quote(layer: str, item: Item) -> bool:
    """Return whether an item quotes a turn. In the layer `moments`, message addresses belong to partition events."""
    return bool(item.role) or ("/messages/" in item.ref and layer != "moments")


def note_results(user: UserProfile, results: Sequence[Result]) -> None:
    """Record search results as served, in the background."""
    turns = [result.content for result in results if result.kind == "turn"]
    platform_text.note_served(user, [result.content for result in results], turns)


def note_accesses(refs: Iterable[str]) -> None:
    """Count one access to each fact among these addresses, in the background."""
    if atoms := [ref.removeprefix(_ATOMS) for ref in refs if ref.startswith(_ATOMS)]:
        waiting_accesses.add((atoms, timezone.now().isoformat()))


def _write_accesses(batch: list[tuple[list[str], str]]) -> None:
    accessed = [(atom_id, at) for atoms, at in batch for atom_id in atoms]
    with connection.cursor() as cursor:
        cursor.execute(_COUNT_SQL, [[atom_id for atom_id, _ in accessed], [at for _, at in accessed]])


waiting_accesses = WriteBuffer("fact-accesses", _write_accesses)
