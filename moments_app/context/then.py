"""A context of a former time: the facts that were known to be valid then, and messages up to that time.

Facts, moments and turns have a time. Profiles, texts of streams and summaries exist only in their current version, so
such a context leaves them out and includes the facts of that time instead.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from django.conf import settings

from moments_app.context.input import ContextInput, LiveTurn, with_ends
from moments_app.context.item import Item
from moments_app.context.layers import LAYERS
from moments_app.context.layers.moments import moment_item
from moments_app.context.layers.streams import fact_item
from moments_app.models import MemoryAtom, Moment
from moments_app.models.moment import LATEST_MOMENTS

NAMES = ("policy", "user", "moments", "hot_turns", "retrieved", "query")
MOST_FACTS = 100


def layer_then(name: str, source: ContextInput, as_of: datetime) -> Iterable[Item]:
    """Return the items of one of `NAMES` as they were at a time."""
    if name == "user":
        return _facts(source, as_of)
    if name == "moments":
        latest = Moment.objects.for_user(source.user).filter(ends_at__lte=as_of).defer("search_vector", "detail")
        return [moment_item(moment) for moment in latest.newest_first()[:LATEST_MOMENTS]]
    if name == "hot_turns":
        return LAYERS[name].items(replace(source, turns=_turns(source, as_of)))
    return LAYERS[name].items(source)


def _facts(source: ContextInput, as_of: datetime) -> list[Item]:
    """Return the facts about this person that were valid then. Lasting facts come first, in case not all fit."""
    facts = MemoryAtom.objects.as_of(as_of).filter(user=source.user).facts()
    lasting = facts.order_by("-worth", "-formed_at", "-id")[:MOST_FACTS]
    zone = source.user.zone
    return [fact_item(fact, zone) for fact in sorted(lasting, key=lambda fact: (fact.formed_at, fact.pk))]


def _turns(source: ContextInput, as_of: datetime) -> list[LiveTurn]:
    said = source.session.messages.turns().believed().filter(user_id=source.user.pk, created_at__lte=as_of)
    latest = said.order_by("-sequence")[: settings.MEMORY_CONTEXT.hot_turns_limit]
    return with_ends(source.user, [LiveTurn.of(message) for message in latest][::-1], as_of)
