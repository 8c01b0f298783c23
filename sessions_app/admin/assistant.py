"""Assistants that ask for keys by OAuth: what is known of them, what they were granted, and an end to it."""

from typing import Any

from django.contrib import admin
from django.contrib.humanize.templatetags.humanize import naturaltime
from django.db.models import Count, F, IntegerField, Max, OuterRef, QuerySet, Subquery
from django.http import HttpRequest
from unfold.decorators import display

from sessions_app.admin.ask_first import asks_first
from sessions_app.admin.base import PageAdmin, one_line
from sessions_app.admin.views.assistant import AssistantForm, RevokeAssistant
from sessions_app.models import OAuthClient, OAuthGrant


def _of_grants(value: Any, **kwargs: Any) -> Subquery:
    grants = OAuthGrant.objects.filter(client=OuterRef("pk")).order_by().values("client").annotate(value=value)
    return Subquery(grants.values("value"), **kwargs)


@admin.register(OAuthClient)
class OAuthClientAdmin(PageAdmin):
    """Assistants, which register themselves or by `manage.py register_assistant`; what they may is in their grants."""

    list_display = ("name", "state", "registered", "leads_to", "keys", "last_use", "made_at")
    tells_of_people = False
    search_fields = search_prefixes = ("name", "client_id")
    search_help_text = "The beginning of a name or client id"
    ordering = ("-id",)
    actions = ("revoke",)
    form_page = AssistantForm
    views = (RevokeAssistant,)
    when_empty = "Assistants that ask for a key by OAuth are listed here."
    fields = readonly_fields = ("client_id", "registered", "redirects", "made_at", "revoked")

    def get_queryset(self, request: HttpRequest) -> QuerySet[OAuthClient]:
        queryset: QuerySet[OAuthClient] = super().get_queryset(request)
        keys = _of_grants(Count("pk"), output_field=IntegerField())
        return queryset.annotate(grant_count=keys, last_used_at=_of_grants(Max("key__last_used_at")))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # where a code may be sent is said by whoever runs the assistant

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return obj is None and super().has_change_permission(request)  # to revoke; there is nothing to edit

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @admin.action(description="Revoke the selected assistants", permissions=["change"])
    @asks_first(
        "All keys that these assistants were granted end now, and they can't ask for others. It can't be taken back.",
        button="Revoke these assistants",
    )
    def revoke(self, request: HttpRequest, queryset: QuerySet[OAuthClient]) -> None:
        """End all that they were granted."""
        RevokeAssistant.change_each(self, request, queryset)

    @display(description="State", label={"active": "success", "revoked": "danger"})  # type: ignore[untyped-decorator]
    def state(self, client: OAuthClient) -> str:
        return client.state

    @admin.display(description="Registered by")
    def registered(self, client: OAuthClient) -> str:
        return client.registered_by

    @admin.display(description="Sends codes to")
    def leads_to(self, client: OAuthClient) -> str:
        first, *others = client.redirect_uris
        return f"{first} and {len(others)} more" if others else str(first)

    @admin.display(description="Sends codes to")
    def redirects(self, client: OAuthClient) -> str:
        return "\n".join(client.redirect_uris)

    @admin.display(description="Keys")
    def keys(self, client: Any) -> int:
        return client.grant_count or 0

    @admin.display(description="Last use", ordering=F("last_used_at").desc(nulls_last=True))
    def last_use(self, client: Any) -> str:
        return str(naturaltime(client.last_used_at)) if client.last_used_at else "never"

    @admin.display(description="Registered", ordering="created_at")
    def made_at(self, client: OAuthClient) -> str:
        return one_line(client.created_at)

    @admin.display(description="Revoked")
    def revoked(self, client: OAuthClient) -> str:
        return one_line(client.revoked_at)
