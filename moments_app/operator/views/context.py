"""The pages of contexts: the preview of a session's context, and the receipt of a served context."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from django import forms
from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder

from moments_app.context.assemble import PLANS, ContextRequest, Envelope, preview, stored_context, stored_lines
from moments_app.context.budget import BudgetTooSmall
from moments_app.context.layers import ALWAYS, LAYERS
from moments_app.context.receipts import StoredLayer, StoredLine
from moments_app.context.render import FORMATS
from moments_app.interfaces.api.memory import context_data
from moments_app.models import ContextReceipt
from moments_app.operator.addresses import Pages, Source
from moments_app.operator.person_pages import PREVIEW_CONTEXT, SEE_MEMORY
from moments_app.operator.views.session import SessionTab
from moments_app.recall.query import recall_request_for
from sessions_app.admin.views import FormPage, without_field
from sessions_app.lexemes import QUERY_MAX_CHARS
from sessions_app.models import Message, Session
from sessions_app.retention.read_archived import with_text
from sessions_app.transcript.append import CONTEXT_ID
from sessions_app.transcript.load import turn_kinds

MAX_TURNS_SEARCHED = 30  # maximum turns to search for the answer to a context
BAR = 1000  # width of a bar's viewBox
COLORS = 11  # number of layer colors in tokens.css


@dataclass(frozen=True)
class ShownLine:
    """A line of a context with its source.

    Args:
        when: the contexts of a trace that contain the line: `same` (both), `then` or `now`.
        field: the line's name in the form of the trace.
    """

    line: StoredLine
    source: Source
    when: str = ""
    field: str = ""


@dataclass(frozen=True)
class ShownLayer:
    """A layer of a context.

    Args:
        key: the layer's name in a context.
        share: its share of the bar, in percent.
        start, width: its position and width in the bar, in units of `BAR`.
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
        return list(LAYERS).index(self.key)

    @property
    def color(self) -> int:
        return self.number % COLORS


def assemble_context(session: Session, wanted: ContextRequest) -> Envelope | None:
    """Assemble a session's context, with a search for the query unless the plan is `stable`.

    Raises:
        BudgetTooSmall: policy and query alone exceed the budget.
    """
    retrieval = "query" if wanted.plan == "query" else "off"
    named, application = (session.user.user_id, session.session_id), session.application_pk
    recall = recall_request_for(*named, wanted.query, application=application, retrieval=retrieval)
    recall = replace(recall, as_of=wanted.as_of) if recall else None
    return preview(session.user, session.session_id, replace(wanted, recall=recall))


def shown_layers(layers: Iterable[StoredLayer], pages: Pages, whole: int) -> list[ShownLayer]:
    """Return the layers of a context. The full width of the bar represents `whole` tokens."""
    shown, start = [], 0
    for layer in layers:
        if layer.name not in LAYERS:  # a layer that this release doesn't have
            continue
        width = round(BAR * layer.tokens / whole)
        lines = [ShownLine(line, pages.source(line.ref)) for line in layer.lines]
        shown.append(ShownLayer(layer.name, layer.tokens, 100 * layer.tokens / whole, start, width, lines))
        start += width
    return shown


# --- the preview ---


class PreviewForm(forms.Form):
    query = forms.CharField(max_length=QUERY_MAX_CHARS, required=False, widget=forms.Textarea(attrs={"rows": 2}))
    max_tokens = forms.IntegerField(min_value=1, required=False)
    format = forms.ChoiceField(choices=[(name, name) for name in FORMATS], required=False)
    plan = forms.ChoiceField(choices=[(name, name) for name in PLANS], required=False)


class ContextPreview(SessionTab):
    """The context that an application would receive for this session, layer by layer."""

    route, name, tab = "<int:pk>/context/", "context", "Context preview"
    needs = (PREVIEW_CONTEXT, *SEE_MEMORY)
    template_name = "operator/sessions/context.html"

    def context(self) -> dict[str, Any]:
        turn = self._question()
        form = PreviewForm(self._data(turn))
        shown = super().context() | {"form": form, "turn": turn}
        return shown | (_preview(self.row, form.cleaned_data, turn) if form.is_valid() else {})

    def _question(self) -> Message | None:
        """Return the user's turn with the sequence number in the URL, or the user's latest turn before it."""
        sequence = self.number("turn")
        if sequence is None:
            return None
        own = self.row.messages.filter(user_id=self.row.user_id, role=Message.Role.USER, sequence__lte=sequence)
        newest = own.order_by("-sequence")
        found = [turn for kind in turn_kinds(self.row) for turn in newest.filter(kind=kind)[:1]]
        turn = max(found, key=attrgetter("sequence"), default=None)
        return turn and with_text(self.row.user, [turn])[0]

    def _data(self, turn: Message | None) -> dict[str, Any]:
        data = {"max_tokens": settings.MEMORY_CONTEXT.max_tokens, "format": "xml"} | self.request.GET.dict()
        return {"query": turn.content[:QUERY_MAX_CHARS]} | data if turn else data


def _preview(session: Session, values: dict[str, Any], turn: Message | None) -> dict[str, Any]:
    wanted = ContextRequest(
        query=values["query"],
        max_tokens=values["max_tokens"],
        format=values["format"] or "xml",
        plan=values["plan"] or "query",
        before=turn.sequence if turn else None,
    )
    try:
        envelope = assemble_context(session, wanted)
    except BudgetTooSmall as error:
        return {"problem": without_field(error)}
    assert envelope is not None  # the session exists
    context, following = stored_context(envelope), stored_lines(envelope.filled.next)
    pages = Pages(session.user, {*context.refs(), *(line.ref for line in following if line.ref)})
    layers = shown_layers(context.layers, pages, context.applied)
    free = context.applied - context.tokens
    return {
        "envelope": envelope,
        "layers": layers,
        "rows": [(layer, [part for part in envelope.trimmed if part.layer == layer.key]) for layer in layers],
        "pinned": ALWAYS,
        "following": [ShownLine(line, pages.source(line.ref)) for line in following],
        "bar": BAR,
        "overhead": envelope.filled.overhead,
        "free": free,
        "free_share": 100 * free / context.applied,
        "text": _text(envelope),
    }


def _text(envelope: Envelope) -> str:
    """Return the context as an application receives it; for formats without text, the whole response."""
    context = envelope.context or context_data(envelope)
    if isinstance(context, str):
        return context
    return json.dumps(context, cls=DjangoJSONEncoder, ensure_ascii=False, indent=2)


# --- receipts ---


class ReceiptForm(FormPage[ContextReceipt]):
    """The page of a receipt, layer by layer. Shows the source of each line, but no text."""

    before = "operator/receipts/receipt.html"

    def context(self) -> dict[str, Any]:
        receipt = self.row
        sizes = tokens_by_layer(receipt)
        total = sum(sizes.values())
        layers = [
            StoredLayer(name, tokens, [StoredLine("", 0, ref) for ref in dict.fromkeys(receipt.refs.get(name, ()))])
            for name, tokens in sizes.items()
        ]
        pages = Pages(receipt.user, [line.ref for layer in layers for line in layer.lines])
        return {
            "receipt": receipt,
            "total": total,
            "layers": shown_layers(layers, pages, total or 1),
            "bar": BAR,
            "answer": _answer_to(receipt),
        }


def tokens_by_layer(receipt: ContextReceipt) -> dict[str, int]:
    """Return the tokens of each layer. Sort the layers as in a context, because the JSON column has no order."""
    return {name: receipt.tokens[name] for name in LAYERS if name in receipt.tokens}


def _answer_to(receipt: ContextReceipt) -> int | None:
    """Return the sequence number of the answer that was based on this context, or None."""
    if receipt.after_sequence is None:
        return None
    after = receipt.session.messages.turns().filter(user=receipt.user_id, sequence__gt=receipt.after_sequence)
    turns = after.order_by("sequence").values_list("sequence", "metadata")[:MAX_TURNS_SEARCHED]
    return next((at for at, metadata in turns if metadata.get(CONTEXT_ID) == str(receipt.context_id)), None)
