"""The page of a webhook, and resending a delivery."""

from typing import Any

from moments_app.models import WebhookDelivery, WebhookEndpoint
from sessions_app.admin.links import list_url
from sessions_app.admin.views.base import FormPage, RowAction

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
