"""The layers of a context, in their order. To add one, write a function in a module here, and add it to `LAYERS`.

Lasting text comes first and text that depends on the query last, so that providers' prompt caches match the beginning.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from moments_app.context.input import ContextInput
from moments_app.context.item import Item
from moments_app.context.layers import entities, frame, hot_turns, moments, retrieved, streams, user


class Layer(NamedTuple):
    """A layer.

    Args:
        items: returns its items, in order.
        is_static: whether they stay the same until the stamp of the input changes.
    """

    items: Callable[[ContextInput], Iterable[Item]]
    is_static: bool


ORDER = (
    "policy",
    "collective",
    "user",
    "moments",
    "summary",
    "conversation",
    "hot_turns",
    "retrieved",
    "entities",
    "now",
    "query",
)
LAYERS = {
    "policy": Layer(frame.policy, is_static=True),
    "collective": Layer(streams.collective, is_static=True),
    "user": Layer(user.items, is_static=True),
    "moments": Layer(moments.moments, is_static=True),
    "summary": Layer(moments.summary, is_static=True),
    "conversation": Layer(streams.conversation, is_static=True),
    "retrieved": Layer(retrieved.items, is_static=False),
    "entities": Layer(entities.items, is_static=False),
    "hot_turns": Layer(hot_turns.items, is_static=False),
    "now": Layer(frame.now, is_static=False),
    "query": Layer(frame.query, is_static=False),
}
# `now` changes with the clock, so it is only included on request.
DEFAULT = tuple(name for name in ORDER if name != "now")
ALWAYS = ("policy", "query")
