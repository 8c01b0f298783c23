"""The layer."""

from collections.abc import Sequence

from moments_app.context.input import ContextInput, Item
from moments_app.context.layers import Layer, add_layer
from tests.support.promises_app.models import Promise


def items(source: ContextInput) -> Sequence[Item]:
    """Return the newest promises."""
    newest = Promise.objects.for_user(source.user).order_by("-pk")[:10]
    return [Item(promise.text, ref=promise.uri, time=promise.created_at) for promise in newest]


add_layer(Layer("promises", items, place=35, tag="Promises", title="Promises", ceiling=0.10))
