"""An application's request for a context."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.conf import settings

from moments_app.context.layers import default_layers
from moments_app.recall.request import RecallRequest

PLANS = ("query", "stable")


@dataclass(frozen=True)
class ContextRequest:
    """A request for a context.

    Args:
        query: the current message; may be blank.
        max_tokens: the budget; None is `MEMORY_CONTEXT__MAX_TOKENS`, which is also the maximum.
        format: a key of `FORMATS`.
        layers: names of the layers to include, in any order; policy and query are always included.
        refresh: rebuild every layer, even if it is cached.
        recall: what to search memory for; None: nothing.
        plan: one of `PLANS`. With `query`, search results get at least half of the budget. With `stable`, the text is
            the same until memory changes, whatever the query is, so that providers' prompt caches serve most of it.
        as_of: the time whose memory is shown: facts that were known to be valid then; None: now.
        sent: texts that the caller gives the model anyway; the context does not repeat them.
        before: sequence of the query's own turn, if it is already in the session. This turn and later ones are left out
            of the session's turns. None: nothing is left out.
        new_agent_id: the agent of a session that has not started; blank: only existing sessions have a context.
        is_trial: the data for it will be rolled back, so no layer is cached or taken from the cache.
    """

    query: str = ""
    max_tokens: int | None = None
    format: str = "xml"
    layers: Sequence[str] = field(default_factory=default_layers)
    refresh: bool = False
    recall: RecallRequest | None = None
    plan: str = "query"
    sent: Sequence[str] = ()
    before: int | None = None
    new_agent_id: str = ""
    is_trial: bool = False
    as_of: datetime | None = None

    @property
    def applied(self) -> int:
        """The budget that applies."""
        most = settings.MEMORY_CONTEXT.max_tokens
        return min(self.max_tokens or most, most)
