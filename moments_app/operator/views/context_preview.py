"""The context of a session as an operator sees it: a form, the layers with their sizes, and where each line is from."""

import json
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from django import forms
from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder

from moments_app.context.assemble import BudgetTooSmall, Envelope, preview
from moments_app.context.layers import ALWAYS
from moments_app.context.plan import Trimmed
from moments_app.context.priced import PricedItem
from moments_app.context.render import FORMATS
from moments_app.context.request import PLANS, ContextRequest
from moments_app.interfaces.api.context import context_data
from moments_app.operator.addresses import Pages
from moments_app.operator.rights import PREVIEW_CONTEXT, SEE_MEMORY
from moments_app.operator.views.session import SessionTab
from moments_app.recall.query import recall_request_for
from moments_app.recall.request import QUERY_MAX_CHARS
from sessions_app.models import Message, Session
from sessions_app.retention.read_archived import with_text
from sessions_app.transcript.load import turn_kinds

BAR = 1000  # width of the bar, in its own units


class PreviewForm(forms.Form):
    """The question of an application."""

    query = forms.CharField(max_length=QUERY_MAX_CHARS, required=False, widget=forms.Textarea(attrs={"rows": 2}))
    max_tokens = forms.IntegerField(min_value=1, required=False)
    format = forms.ChoiceField(choices=[(name, name) for name in FORMATS], required=False)
    plan = forms.ChoiceField(choices=[(name, name) for name in PLANS], required=False)


@dataclass(frozen=True)
class ShownLine:
    """An item with the page of where it comes from."""

    line: PricedItem
    url: str


@dataclass(frozen=True)
class ShownLayer:
    """A layer, and the part of the bar that it takes.

    Args:
        share: of the budget, in per cent.
        start, width: in units of the bar.
        number: of its color.
        is_pinned: it is never trimmed.
        trimmed: what it had to give.
    """

    name: str
    tokens: int
    share: float
    lines: list[ShownLine]
    start: int
    width: int
    number: int
    is_pinned: bool
    trimmed: list[Trimmed]


class ContextPreview(SessionTab):
    """The context that an application would get for this session, layer by layer."""

    route, name, tab = "<int:pk>/context/", "context", "Context preview"
    needs = (PREVIEW_CONTEXT, *SEE_MEMORY)
    template_name = "operator/sessions/context.html"

    def context(self) -> dict[str, Any]:
        turn = self._question()
        form = PreviewForm(self._data(turn))
        shown = super().context() | {"form": form, "turn": turn}
        return shown | (_preview(self.row, form.cleaned_data, turn) if form.is_valid() else {})

    def _question(self) -> Message | None:
        """Return the user's turn that the turn of the address answers, or is."""
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


def _preview(session: Session, asked: dict[str, Any], turn: Message | None) -> dict[str, Any]:
    """Assemble the context, as if a turn were asked now, and collect what the page shows of it."""
    plan = asked["plan"] or "query"
    retrieval = "query" if plan == "query" else "off"
    wanted = ContextRequest(
        query=asked["query"],
        max_tokens=asked["max_tokens"],
        format=asked["format"] or "xml",
        recall=recall_request_for(
            session.user.user_id,
            session.session_id,
            asked["query"],
            application=session.application_pk,
            retrieval=retrieval,
        ),
        plan=plan,
        before=turn.sequence if turn else None,
    )
    try:
        envelope = preview(session.user, session.session_id, wanted)
    except BudgetTooSmall as error:
        return {"problem": str(error)}
    assert envelope is not None  # the session is there
    free = envelope.request.applied - envelope.filled.tokens
    return {
        "envelope": envelope,
        "layers": _layers(envelope),
        "following": envelope.filled.next,
        "bar": BAR,
        "overhead": envelope.filled.overhead,
        "free": free,
        "free_share": 100 * free / envelope.request.applied,
        "text": _text(envelope),
    }


def _text(envelope: Envelope) -> str:
    """Write the context as an application gets it; of a format without text the whole answer."""
    context = envelope.context or context_data(envelope)
    if isinstance(context, str):
        return context
    return json.dumps(context, cls=DjangoJSONEncoder, ensure_ascii=False, indent=2)


def _layers(envelope: Envelope) -> list[ShownLayer]:
    filled, start, shown = envelope.filled, 0, []
    refs = [line.item.ref for lines in filled.layers.values() for line in lines]
    pages = Pages(envelope.input.user, refs)
    for position, (name, lines) in enumerate(filled.layers.items()):
        tokens = filled.tokens_of(name)
        share = tokens / envelope.request.applied
        layer = ShownLayer(
            name=name.replace("_", " "),
            tokens=tokens,
            share=100 * share,
            lines=[ShownLine(line, pages.of(line.item.ref)) for line in lines],
            start=start,
            width=round(BAR * share),
            number=position,
            is_pinned=name in ALWAYS,
            trimmed=[part for part in envelope.trimmed if part.layer == name],
        )
        shown.append(layer)
        start += layer.width
    return shown
