"""The lists of webhooks and of their deliveries, and the page of a webhook."""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from unfold.decorators import display
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from moments_app.models import WebhookDelivery, WebhookEndpoint
from moments_app.models.webhook import WebhookEvent, public_name
from sessions_app.admin.applications import are_several
from sessions_app.admin.base import LogAdmin, PageAdmin, time_cell
from sessions_app.admin.links import column, list_url
from sessions_app.admin.views import FormPage, RowAction

SHOWN = 10


class WebhookForm(FormPage[WebhookEndpoint]):
    """The page of a webhook: its state, its secret, and its latest deliveries."""

    before = "operator/webhooks/webhook.html"

    def context(self) -> dict[str, Any]:
        deliveries = self.visible(WebhookDelivery.objects.filter(endpoint=self.row).select_related("event", "endpoint"))
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

    list_display = ("name", "state", "event_names", "created_at")
    shows_personal_data = False
    search_fields = search_prefixes = ("name",)
    ordering = ("name", "-id")
    form_page = WebhookForm
    when_empty = (
        "No webhooks yet. Add one to notify another system of moments, cleared sessions, failures and erasures."
    )

    def get_fields(self, request: HttpRequest, obj: WebhookEndpoint | None = None) -> Any:
        application = ("application",) if are_several() else ()
        return ("name", "url", "events", "is_active", *application)

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if db_field.name == "events":
            return forms.MultipleChoiceField(
                choices=WebhookEvent.choices, widget=UnfoldAdminCheckboxSelectMultipleWidget
            )
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def save_model(self, request: HttpRequest, obj: WebhookEndpoint, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        if change and {"url", "is_active"} & {*form.changed_data}:
            obj.send_waiting()

    @display(description="State", label={"active": "success", "failing": "danger", "off": "warning"})  # type: ignore[untyped-decorator]
    def state(self, webhook: WebhookEndpoint) -> str:
        return "off" if not webhook.is_active else "failing" if webhook.failures else "active"

    @admin.display(description="Events")
    def event_names(self, webhook: WebhookEndpoint) -> str:
        return ", ".join(map(public_name, webhook.events))


@admin.register(WebhookDelivery)
class WebhookDeliveryAdmin(LogAdmin):
    """Delivered, waiting and failed deliveries, newest first."""

    list_display = ("queued", "event_name", "endpoint", "outcome", "attempts", "last_error", "next_at")
    list_filter = ("endpoint",)
    list_select_related = ("endpoint", "event")
    applications = ("endpoint__application",)
    shows_personal_data = False
    ordering = ("-id",)
    actions = ("resend",)
    views = (ResendDelivery,)
    when_empty = "No deliveries yet. Each notification to a webhook is listed here."
    fields = readonly_fields = (
        "queued",
        "event_name",
        "endpoint",
        "outcome",
        "attempts",
        "last_error",
        "sent",
        "next_at",
    )

    steer_permission = "moments_app.change_webhookendpoint"
    resend = ResendDelivery.for_selected(
        "Resend selected",
        button="Resend these deliveries",
        warning="Each delivery is sent to its endpoint again, even if it was received before.",
    )
    queued = column("queued_at", "Queued", time_cell)
    event_name = column("event_name", "Event")
    outcome = column("state", "State", label={"sent": "success", "waiting": "warning", "failed": "danger"})
    sent = column("sent_at", "Sent", time_cell)
    next_at = column("due_at", "Next attempt", time_cell)

    @admin.display(description="Last error")
    def last_error(self, delivery: WebhookDelivery) -> str:
        return delivery.error or "–"
