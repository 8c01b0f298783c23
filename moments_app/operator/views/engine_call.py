"""The page of a call: of one that failed, what was asked and answered."""

from collections.abc import Collection
from typing import Any

from moments_app.models import EngineCall, KeptExchange
from moments_app.operator.rights import PREVIEW_CONTEXT, SEE_MEMORY
from sessions_app.admin.views.base import FormPage


class CallForm(FormPage[EngineCall]):
    """A call, and the texts of one that failed for those who may read people's memory."""

    before = "operator/calls/exchange.html"

    def context(self) -> dict[str, Any]:
        kept, may_read = self._kept(), self.request.user.has_perms((PREVIEW_CONTEXT, *SEE_MEMORY))
        shown = {"call": self.row, "is_kept": kept is not None}
        return shown | {"exchange": kept.exchange if kept and may_read else None}

    def people(self) -> Collection[int]:
        """Return the person for whom a call was made whose texts are kept."""
        kept = self._kept()
        return [kept.user_id] if kept else []

    def _kept(self) -> KeptExchange | None:
        return KeptExchange.objects.filter(call=self.row).first() if not self.row.ok else None
