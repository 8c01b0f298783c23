"""The page of a call, with the texts of a failed call; and the cost of all calls."""

from collections.abc import Collection
from functools import partial
from typing import Any

from django.core.cache import cache

from moments_app.models import EngineCall, KeptExchange
from moments_app.operator.rights import PREVIEW_CONTEXT, SEE_MEMORY
from moments_app.reports import cost
from sessions_app.admin.views.base import FormPage, OperatorPage
from sessions_app.database.several_servers import read_for_page
from sessions_app.limited_operators import scope_key

KEPT_SECONDS = 300  # summing a month of calls takes a second


class CallForm(FormPage[EngineCall]):
    """A call, with the texts of a failed one for operators who may read people's memory."""

    before = "operator/calls/exchange.html"

    def context(self) -> dict[str, Any]:
        kept, may_read = self._kept(), self.request.user.has_perms((PREVIEW_CONTEXT, *SEE_MEMORY))
        shown = {"call": self.row, "is_kept": kept is not None}
        return shown | {"exchange": kept.exchange if kept and may_read else None}

    def people(self) -> Collection[int]:
        """Return the person of a call whose texts are stored."""
        kept = self._kept()
        return [kept.user_id] if kept else []

    def _kept(self) -> KeptExchange | None:
        return KeptExchange.objects.filter(call=self.row).first() if not self.row.ok else None


class SiteCost(OperatorPage):
    """The usage of calls by day, purpose, application, person and prompt; and the times of summaries."""

    route, name = "cost/", "cost"
    needs = ("moments_app.view_job",)
    template_name = "operator/calls/cost.html"
    title = f"Cost of the last {cost.DAYS} days"

    def context(self) -> dict[str, Any]:
        count = partial(read_for_page, self.request, cost.site_cost)
        counted: Any = cache.get_or_set(f"cost{scope_key()}", count, KEPT_SECONDS)
        return {"cost": counted, "newest": cost.SUMMARIES}
