"""Receipts of served contexts."""

from django.conf import settings

from moments_app.context.kept import KeptContext
from moments_app.models import ContextReceipt
from sessions_app.models import Session, UserProfile
from sessions_app.write_behind import WriteBehind


def keep(receipt: ContextReceipt, context: KeptContext) -> None:
    """Note a receipt and the context that it is of; return at once."""
    if settings.MEMORY_CONTEXT.receipt_days:
        waiting.note((receipt, context))


def _write(noted: list[tuple[ContextReceipt, KeptContext]]) -> None:
    batch = [receipt for receipt, _ in noted]
    # Sessions may have been deleted since, and people erased: locked in the order in which erasing locks them.
    UserProfile.objects.hold({r.user_id for r in batch})
    there = Session.objects.select_for_update(no_key=True).filter(pk__in={r.session_id for r in batch})
    kept = set(there.order_by("pk").values_list("pk", flat=True))
    for receipt, context in noted:
        receipt.sealed = context.sealed(receipt.context_id)  # here, and not while somebody waits for the context
    ContextReceipt.objects.bulk_create([r for r in batch if r.session_id in kept], batch_size=500)


waiting = WriteBehind("context-receipts", _write)
