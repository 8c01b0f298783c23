"""Assemble a context for the admin, and show its layers, their shares of a bar, and their lines with links."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from moments_app.context.assemble import ContextRequest, Envelope, preview
from moments_app.context.layers import LAYERS
from moments_app.context.receipts import KeptLayer, KeptLine
from moments_app.operator.addresses import Pages, Source
from moments_app.recall.query import recall_request_for
from sessions_app.models import Session

BAR = 1000  # width of a bar's viewBox
COLORS = 11  # number of layer colors in tokens.css


@dataclass(frozen=True)
class ShownLine:
    """A line of a context.

    Args:
        when: the contexts of a trace that contain the line: `same` (both), `then` or `now`.
        field: the line's name in a form.
    """

    line: KeptLine
    source: Source
    when: str = ""
    field: str = ""


@dataclass(frozen=True)
class ShownLayer:
    """A layer of a context.

    Args:
        key: the layer's name in a context.
        share: the layer's share of the bar, in percent.
        start, width: the layer's position and width in the bar, in units of `BAR`.
    """

    key: str
    tokens: int
    share: float = 0
    start: int = 0
    width: int = 0
    lines: list[ShownLine] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.key.replace("_", " ")

    @property
    def number(self) -> int:
        """The layer's position among all layers."""
        return list(LAYERS).index(self.key)

    @property
    def color(self) -> int:
        """The number of the layer's color, which is the same on all pages."""
        return self.number % COLORS


def assembled(session: Session, wanted: ContextRequest) -> Envelope | None:
    """Assemble a session's context, with a search for the query unless the plan is `stable`.

    Raises:
        BudgetTooSmall: policy and query alone exceed the budget.
    """
    retrieval = "query" if wanted.plan == "query" else "off"
    named, application = (session.user.user_id, session.session_id), session.application_pk
    recall = recall_request_for(*named, wanted.query, application=application, retrieval=retrieval)
    recall = replace(recall, as_of=wanted.as_of) if recall else None
    return preview(session.user, session.session_id, replace(wanted, recall=recall))


def shown_layers(layers: Iterable[KeptLayer], pages: Pages, whole: int) -> list[ShownLayer]:
    """Return the layers of a context.

    Args:
        pages: looks up the page of each line's source.
        whole: the number of tokens that the full width of the bar represents.
    """
    shown, start = [], 0
    for layer in layers:
        if layer.name not in LAYERS:  # a layer of another release
            continue
        width = round(BAR * layer.tokens / whole)
        lines = [ShownLine(line, pages.source(line.ref)) for line in layer.lines]
        shown.append(ShownLayer(layer.name, layer.tokens, 100 * layer.tokens / whole, start, width, lines))
        start += width
    return shown
