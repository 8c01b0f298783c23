"""Record which lines of contexts and search results were served."""

from collections.abc import Mapping, Sequence

from moments_app.context.item import Item
from moments_app.context.priced import PricedItem
from moments_app.context.render import Rendered
from moments_app.recall.results import Result
from moments_app.turns import served_lines
from sessions_app.models import UserProfile


def note_context(user: UserProfile, context: Rendered, layers: Mapping[str, Sequence[PricedItem]], query: str) -> None:
    """Record a context as served, in the background.

    Args:
        user: the person whose memory it is.
        context: the rendered context; blank if the layers are the answer.
        layers: the layers of the context.
        query: the message that the context was built for.
    """
    items = [(name, priced.item) for name, layer in layers.items() for priced in layer]
    texts = [context] if isinstance(context, str) else [message["content"] or "" for message in context]
    quoted = [item.text for name, item in items if _is_quote(name, item)]
    served_lines.note(user, texts if context else [item.text for _name, item in items], quoted, query)


def _is_quote(layer: str, item: Item) -> bool:
    """Return whether an item quotes a turn. The moments layer uses a message's address for a partition event."""
    return bool(item.role) or ("/messages/" in item.ref and layer != "moments")


def note_results(user: UserProfile, results: Sequence[Result]) -> None:
    """Record search results as served, in the background."""
    turns = [result.content for result in results if result.kind == "turn"]
    served_lines.note(user, [result.content for result in results], turns)
