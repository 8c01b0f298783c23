"""Receipts of served contexts."""

from django.conf import settings

from moments_app.models import ContextReceipt
from sessions_app.models import Session, UserProfile
from sessions_app.write_behind import WriteBehind


def keep(receipt: ContextReceipt) -> None:
    """Note a receipt; return at once."""
    if settings.MEMORY_CONTEXT.receipt_days:
        waiting.note(receipt)


def _write(batch: list[ContextReceipt]) -> None:
    # Sessions may have been deleted since, and people erased: locked in the order in which erasing locks them.
    UserProfile.objects.hold({r.user_id for r in batch})
    there = Session.objects.select_for_update(no_key=True).filter(pk__in={r.session_id for r in batch})
    kept = set(there.order_by("pk").values_list("pk", flat=True))
    ContextReceipt.objects.bulk_create([r for r in batch if r.session_id in kept], batch_size=500)


waiting = WriteBehind("context-receipts", _write)
