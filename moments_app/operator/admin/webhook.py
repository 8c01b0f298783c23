"""Webhooks: the list, the page of one, the list of deliveries, and resending a delivery."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.decorators import display
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from moments_app.models import WebhookDelivery, WebhookEndpoint
from moments_app.models.webhook import Occasion, told_as
from sessions_app.admin.applications import are_several
from sessions_app.admin.base import LogAdmin, PageAdmin, one_line
from sessions_app.admin.links import list_url
from sessions_app.admin.views import FormPage, RowAction, asks_first

SHOWN = 10


class WebhookForm(FormPage[WebhookEndpoint]):
    """The page of a webhook: its state, its secret, and its latest deliveries."""

    before = "operator/webhooks/webhook.html"

    def context(self) -> dict[str, Any]:
        deliveries = self.seen(WebhookDelivery.objects.filter(endpoint=self.row).select_related("event", "endpoint"))
        return {
            "webhook": self.row,
            "may_see_secret": self.admin.has_change_permission(self.request),
            "deliveries": deliveries.order_by("-id")[:SHOWN],
            "all_deliveries": list_url(WebhookDelivery, endpoint__id__exact=self.row.pk),
        }


class ResendDelivery(RowAction[WebhookDelivery]):
    """Resend a delivery now."""

    route, name, permission = "<path:pk>/resend/", "resend", "steer"

    def change(self, delivery: WebhookDelivery) -> str:
        delivery.resend()
        self.log(delivery, "Resent.", f"{delivery} is being resent.")
        return list_url(WebhookDelivery)


@admin.register(WebhookEndpoint)
class WebhookEndpointAdmin(PageAdmin):
    """Systems that are notified of events. Adding one requires a separate permission."""

    list_display = ("name", "state", "told_of", "created_at")
    tells_of_people = False
    search_fields = search_prefixes = ("name",)
    ordering = ("name", "-id")
    form_page = WebhookForm
    when_empty = (
        "No webhooks yet. Add one to notify another system of moments, cleared sessions, failures and erasures."
    )

    def get_fields(self, request: HttpRequest, obj: WebhookEndpoint | None = None) -> Any:
        whose = ("application",) if are_several() else ()
        return ("name", "url", "events", "is_active", *whose)

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "events":
            return forms.MultipleChoiceField(choices=Occasion.choices, widget=UnfoldAdminCheckboxSelectMultipleWidget)
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    @display(description="State", label={"active": "success", "failing": "danger", "off": "warning"})  # type: ignore[untyped-decorator]
    def state(self, webhook: WebhookEndpoint) -> str:
        return "off" if not webhook.is_active else "failing" if webhook.failures else "active"

    @admin.display(description="Events")
    def told_of(self, webhook: WebhookEndpoint) -> str:
        return ", ".join(map(told_as, webhook.events))


@admin.register(WebhookDelivery)
class WebhookDeliveryAdmin(LogAdmin):
    """Delivered, waiting and failed deliveries, newest first."""

    list_display = ("queued", "called", "endpoint", "how", "attempts", "last_error", "next_at")
    list_filter = ("endpoint",)
    list_select_related = ("endpoint", "event")
    applications = ("endpoint__application",)
    tells_of_people = False
    ordering = ("-id",)
    actions = ("resend",)
    views = (ResendDelivery,)
    when_empty = "No deliveries yet. Each notification to a webhook is listed here."
    fields = readonly_fields = ("queued", "called", "endpoint", "how", "attempts", "last_error", "sent", "next_at")

    def has_steer_permission(self, request: HttpRequest) -> bool:
        """Allow operators who may change webhooks to resend deliveries. Rows can't be edited."""
        return request.user.has_perm("moments_app.change_webhookendpoint")

    @admin.action(description="Resend selected", permissions=["steer"])
    @asks_first(
        "Each delivery is sent to its endpoint again, even if it was received before.",
        button="Resend these deliveries",
    )
    def resend(self, request: HttpRequest, queryset: QuerySet[WebhookDelivery]) -> None:
        """Make each delivery due now."""
        ResendDelivery.change_each(self, request, queryset)

    @admin.display(description="Queued")
    def queued(self, delivery: WebhookDelivery) -> str:
        return one_line(delivery.queued_at)

    @admin.display(description="Event")
    def called(self, delivery: WebhookDelivery) -> str:
        return delivery.called

    @display(description="State", label={"sent": "success", "waiting": "warning", "failed": "danger"})  # type: ignore[untyped-decorator]
    def how(self, delivery: WebhookDelivery) -> str:
        return delivery.state

    @admin.display(description="Last error")
    def last_error(self, delivery: WebhookDelivery) -> str:
        return delivery.error or "–"

    @admin.display(description="Sent")
    def sent(self, delivery: WebhookDelivery) -> str:
        return one_line(delivery.sent_at)

    @admin.display(description="Next attempt")
    def next_at(self, delivery: WebhookDelivery) -> str:
        return one_line(delivery.due_at)
