"""What of a context or of a search's results is noted as served."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from moments_app.context.item import Item
from moments_app.context.render import Rendered
from moments_app.recall.search import Result
from moments_app.turns import served_lines
from sessions_app.models import UserProfile


class Placed(Protocol):
    """An item as it stands in a context."""

    @property
    def item(self) -> Item: ...


def note_context(user: UserProfile, context: Rendered, layers: Mapping[str, Sequence[Placed]], query: str) -> None:
    """Notes a context as served; returns at once.

    Args:
        user: whose memory it is.
        context: as it is written; blank where the layers are the answer.
        layers: what stands in it.
        query: the message it is for.
    """
    items = [(name, line.item) for name, lines in layers.items() for line in lines]
    texts = [context] if isinstance(context, str) else [message["content"] or "" for message in context]
    quoted = [item.text for name, item in items if _is_quote(name, item)]
    served_lines.note(user, texts if context else [item.text for _name, item in items], quoted, query)


def _is_quote(layer: str, item: Item) -> bool:
    """Whether somebody said it: a turn; the moments' layer has the address of a partition event."""
    return bool(item.role) or ("/messages/" in item.ref and layer != "moments")


def note_results(user: UserProfile, results: Sequence[Result]) -> None:
    """Notes what a search has found as served; returns at once."""
    turns = [result.content for result in results if result.kind == "turn"]
    served_lines.note(user, [result.content for result in results], turns)
