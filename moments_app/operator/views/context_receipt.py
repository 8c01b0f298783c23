"""The page of a receipt: what went into a context that was served, each line with the page of what it names."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from moments_app.context.layers import ORDER
from moments_app.models import ContextReceipt
from moments_app.operator.addresses import Pages
from sessions_app.admin.views.base import FormPage
from sessions_app.transcript.append import CONTEXT_ID

BAR = 1000  # width of the bar, in its own units
LOOKED_AT = 30  # turns after a context was served


@dataclass(frozen=True)
class ServedLayer:
    """A layer of a served context, and the part of the bar that it takes.

    Args:
        lines: addresses of its items, each with its page; the page is blank where there is none any more.
    """

    name: str
    tokens: int
    lines: Sequence[tuple[str, str]]
    start: int
    width: int
    number: int


class ReceiptForm(FormPage[ContextReceipt]):
    """The page of a receipt, layer by layer."""

    before = "operator/receipts/receipt.html"

    def context(self) -> dict[str, Any]:
        receipt = self.row
        return {
            "receipt": receipt,
            "total": total_of(receipt),
            "layers": served_layers(receipt),
            "bar": BAR,
            "answer": answer_to(receipt),
        }


def answer_to(receipt: ContextReceipt) -> int | None:
    """Return the sequence of the turn for which a context was served; None where nobody said which one that is."""
    if receipt.after_sequence is None:
        return None
    after = receipt.session.messages.turns().filter(user=receipt.user_id, sequence__gt=receipt.after_sequence)
    turns = after.order_by("sequence").values_list("sequence", "metadata")[:LOOKED_AT]
    return next((at for at, metadata in turns if metadata.get(CONTEXT_ID) == str(receipt.context_id)), None)


def tokens_by_layer(receipt: ContextReceipt) -> dict[str, int]:
    """Return the tokens of each layer in the order of a context: the column keeps none."""
    return {name: receipt.tokens[name] for name in ORDER if name in receipt.tokens}


def total_of(receipt: ContextReceipt) -> str:
    """Return the tokens of all layers, as pages write them."""
    return f"{sum(tokens_by_layer(receipt).values()):,}"


def served_layers(receipt: ContextReceipt) -> list[ServedLayer]:
    """List the layers of a receipt, in order."""
    tokens = tokens_by_layer(receipt)
    pages = Pages(receipt.user, [ref for name in tokens for ref in receipt.refs.get(name, ())])
    total, start, layers = sum(tokens.values()) or 1, 0, []
    for number, (name, size) in enumerate(tokens.items()):
        width = round(BAR * size / total)
        lines = [(ref, pages.of(ref)) for ref in dict.fromkeys(receipt.refs.get(name, ()))]
        layers.append(ServedLayer(name.replace("_", " "), size, lines, start, width, number))
        start += width
    return layers
