"""What an application asks for when it asks for a context."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings

from moments_app.context.layers import DEFAULT
from moments_app.recall.request import RecallRequest

PLANS = ("query", "stable")


@dataclass(frozen=True)
class ContextRequest:
    """A context to be made.

    Args:
        query: the current message; may be blank.
        max_tokens: the budget; None is `MEMORY_CONTEXT__MAX_TOKENS`, which is also the most.
        format: a key of `FORMATS`.
        layers: names of the layers to include, in any order; policy and query are always there.
        refresh: build every layer again, kept or not.
        recall: what to search memory for; None: nothing.
        plan: one of `PLANS`. With `query`, what answers the query has at least half of the budget. With `stable`, the
            text is the same until memory changes, whatever is asked, so that providers' prompt caches serve most of it.
        as_of: the time whose memory is told: what was known then to hold; None: now.
        sent: texts that the caller gives the model anyway; the context does not repeat them.
        before: sequence of the turn that asks, if it was asked before: neither it nor what was said after it is told
            as said in this session; None: nothing is left out.
        new_agent_id: the agent of a session that has not begun; blank: only of one that has there is a context.
        is_trial: what it is made of is taken back: no layer is kept for later contexts, nor taken from earlier ones.
    """

    query: str = ""
    max_tokens: int | None = None
    format: str = "xml"
    layers: Sequence[str] = DEFAULT
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
        """The budget that holds."""
        most = settings.MEMORY_CONTEXT.max_tokens
        return min(self.max_tokens or most, most)
