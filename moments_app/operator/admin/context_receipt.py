"""Receipts: what went into the contexts that were served, each line with the page of what it names."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.paginator import InfinitePaginator

from moments_app.context.layers import ORDER
from moments_app.models import ContextReceipt
from moments_app.operator.admin.addresses import Pages
from moments_app.operator.admin.filters import UserFilter
from moments_app.operator.admin.links import link_to
from sessions_app.admin.base import DaysFilter, ReadOnlyAdmin, prefix_search

BAR = 1000  # width of the bar, in its own units


@dataclass(frozen=True)
class ServedLayer:
    """A layer of a served context, and the stretch of the bar that it takes.

    Args:
        lines: addresses of its items, each with its page; the page is blank where there is none any more.
    """

    name: str
    tokens: int
    lines: Sequence[tuple[str, str]]
    start: int
    width: int
    number: int


def tokens_by_layer(receipt: ContextReceipt) -> dict[str, int]:
    """In the order of a context: the column keeps none."""
    return {name: receipt.tokens[name] for name in ORDER if name in receipt.tokens}


def served_layers(receipt: ContextReceipt) -> list[ServedLayer]:
    """The layers of a receipt, in order."""
    tokens = tokens_by_layer(receipt)
    pages = Pages(receipt.user, [ref for name in tokens for ref in receipt.refs.get(name, ())])
    total, start, layers = sum(tokens.values()) or 1, 0, []
    for number, (name, size) in enumerate(tokens.items()):
        width = round(BAR * size / total)
        lines = [(ref, pages.of(ref)) for ref in dict.fromkeys(receipt.refs.get(name, ()))]
        layers.append(ServedLayer(name.replace("_", " "), size, lines, start, width, number))
        start += width
    return layers


@admin.register(ContextReceipt)
class ContextReceiptAdmin(ReadOnlyAdmin):
    """What went into the contexts that were served."""

    list_display = ("created_at", "session_link", "user_link", "total", "layers", "context_id")
    list_filter = (UserFilter, ("created_at", DaysFilter))
    list_filter_submit = True
    list_select_related = ("session", "user")
    paginator = InfinitePaginator
    search_fields = ("context_id",)
    search_help_text = "The beginning of a session_id or user_id"
    ordering = ("-created_at", "-id")
    change_form_outer_before_template = "operator/receipts/receipt.html"

    def get_fieldsets(self, request: HttpRequest, obj: ContextReceipt | None = None) -> list[Any]:
        return []  # the page shows the row in its own way

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[ContextReceipt], search_term: str
    ) -> tuple[QuerySet[ContextReceipt], bool]:
        return prefix_search(queryset, search_term, "session__session_id", "user__user_id"), False

    def around(self, request: HttpRequest, obj: ContextReceipt) -> dict[str, Any]:
        """What the context was made of."""
        return {"receipt": obj, "total": self.total(obj), "layers": served_layers(obj), "bar": BAR}

    @admin.display(description="Tokens")
    def total(self, receipt: ContextReceipt) -> str:
        return f"{sum(tokens_by_layer(receipt).values()):,}"

    @admin.display(description="Layers")
    def layers(self, receipt: ContextReceipt) -> str:
        return ", ".join(f"{name} {tokens}" for name, tokens in tokens_by_layer(receipt).items())

    @admin.display(description="Session")
    def session_link(self, receipt: ContextReceipt) -> SafeString | str:
        return link_to(receipt.session)

    @admin.display(description="User")
    def user_link(self, receipt: ContextReceipt) -> SafeString | str:
        return link_to(receipt.user)
