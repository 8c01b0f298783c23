"""Receipts of served contexts: the list, and the page with a link for each line."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.paginator import InfinitePaginator

from moments_app.context.kept import KeptLayer, KeptLine
from moments_app.context.layers import ORDER
from moments_app.models import ContextReceipt
from moments_app.operator.addresses import Pages
from moments_app.operator.admin.filters import UserFilter
from moments_app.operator.context_view import BAR, ShownLayer, shown_layers
from sessions_app.admin.base import DaysFilter, ReadOnlyAdmin
from sessions_app.admin.links import link_to
from sessions_app.admin.views.base import FormPage
from sessions_app.transcript.append import CONTEXT_ID

LOOKED_AT = 30  # maximum turns to search after a context was served


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
    """Return the sequence of the turn for which a context was served; None if no turn names it."""
    if receipt.after_sequence is None:
        return None
    after = receipt.session.messages.turns().filter(user=receipt.user_id, sequence__gt=receipt.after_sequence)
    turns = after.order_by("sequence").values_list("sequence", "metadata")[:LOOKED_AT]
    return next((at for at, metadata in turns if metadata.get(CONTEXT_ID) == str(receipt.context_id)), None)


def tokens_by_layer(receipt: ContextReceipt) -> dict[str, int]:
    """Return the tokens of each layer, in the order of a context. The database column has no order."""
    return {name: receipt.tokens[name] for name in ORDER if name in receipt.tokens}


def total_of(receipt: ContextReceipt) -> str:
    """Return the total tokens, formatted for pages."""
    return f"{sum(tokens_by_layer(receipt).values()):,}"


def served_layers(receipt: ContextReceipt) -> list[ShownLayer]:
    """Return the layers of a receipt. Their lines contain only addresses."""
    layers = [
        KeptLayer(name, tokens, [KeptLine("", 0, ref) for ref in dict.fromkeys(receipt.refs.get(name, ()))])
        for name, tokens in tokens_by_layer(receipt).items()
    ]
    pages = Pages(receipt.user, [line.ref for layer in layers for line in layer.lines])
    return shown_layers(layers, pages, sum(layer.tokens for layer in layers) or 1)


@admin.register(ContextReceipt)
class ContextReceiptAdmin(ReadOnlyAdmin):
    """Receipts of contexts: their sizes, by layer."""

    list_display = ("created_at", "session_link", "user_link", "total", "layers", "context_id")
    applications = ("user__application",)
    list_filter = (UserFilter, ("created_at", DaysFilter))
    list_filter_submit = True
    list_select_related = ("session", "user")
    paginator = InfinitePaginator
    tells_of_people = False
    search_fields = search_prefixes = ("session__session_id", "user__user_id")
    search_help_text = "Start of a session_id or user_id"
    ordering = ("-created_at", "-id")
    when_empty = "No served contexts. A context appears here when an application requests it."
    form_page = ReceiptForm

    def get_fieldsets(self, request: HttpRequest, obj: ContextReceipt | None = None) -> list[Any]:
        return []  # the page doesn't use Django's fields

    @admin.display(description="Tokens")
    def total(self, receipt: ContextReceipt) -> str:
        return total_of(receipt)

    @admin.display(description="Layers")
    def layers(self, receipt: ContextReceipt) -> str:
        return ", ".join(f"{name} {tokens}" for name, tokens in tokens_by_layer(receipt).items())

    @admin.display(description="Session")
    def session_link(self, receipt: ContextReceipt) -> SafeString | str:
        return link_to(receipt.session)

    @admin.display(description="User")
    def user_link(self, receipt: ContextReceipt) -> SafeString | str:
        return link_to(receipt.user)
