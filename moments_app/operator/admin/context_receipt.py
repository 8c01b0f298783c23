"""The list of receipts of served contexts."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.paginator import InfinitePaginator

from moments_app.models import ContextReceipt
from moments_app.operator.admin.filters import UserFilter
from moments_app.operator.views.context_receipt import ReceiptForm, tokens_by_layer, total_of
from sessions_app.admin.base import DaysFilter, ReadOnlyAdmin
from sessions_app.admin.links import link_to


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
