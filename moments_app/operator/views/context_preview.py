"""Preview a session's context for an operator: a form, the layers with their sizes, and the source of each line."""

import json
from operator import attrgetter
from typing import Any

from django import forms
from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder

from moments_app.context.assemble import PLANS, ContextRequest, Envelope, kept_context, kept_lines
from moments_app.context.budget import BudgetTooSmall
from moments_app.context.layers import ALWAYS
from moments_app.context.render import FORMATS
from moments_app.interfaces.api.memory import context_data
from moments_app.operator.addresses import Pages
from moments_app.operator.context_view import BAR, ShownLine, assembled, shown_layers
from moments_app.operator.rights import PREVIEW_CONTEXT, SEE_MEMORY
from moments_app.operator.views.session import SessionTab
from sessions_app.lexemes import QUERY_MAX_CHARS
from sessions_app.models import Message, Session
from sessions_app.retention.read_archived import with_text
from sessions_app.transcript.load import turn_kinds


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
        """Return the user's turn with the sequence in the URL, or the latest user turn before it."""
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
    """Assemble the context of a new turn, and collect the page's data about it."""
    wanted = ContextRequest(
        query=asked["query"],
        max_tokens=asked["max_tokens"],
        format=asked["format"] or "xml",
        plan=asked["plan"] or "query",
        before=turn.sequence if turn else None,
    )
    try:
        envelope = assembled(session, wanted)
    except BudgetTooSmall as error:
        return {"problem": str(error)}
    assert envelope is not None  # the session exists
    kept, following = kept_context(envelope), kept_lines(envelope.filled.next)
    pages = Pages(session.user, {*kept.refs(), *(line.ref for line in following if line.ref)})
    layers, free = shown_layers(kept.layers, pages, kept.applied), kept.applied - kept.tokens
    return {
        "envelope": envelope,
        "layers": layers,
        "rows": [(layer, [part for part in envelope.trimmed if part.layer == layer.key]) for layer in layers],
        "pinned": ALWAYS,
        "following": [ShownLine(line, pages.source(line.ref)) for line in following],
        "bar": BAR,
        "overhead": envelope.filled.overhead,
        "free": free,
        "free_share": 100 * free / kept.applied,
        "text": _text(envelope),
    }


def _text(envelope: Envelope) -> str:
    """Return the context as an application receives it; for formats without text, the whole response."""
    context = envelope.context or context_data(envelope)
    if isinstance(context, str):
        return context
    return json.dumps(context, cls=DjangoJSONEncoder, ensure_ascii=False, indent=2)
