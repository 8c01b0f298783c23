"""The page of an assistant that asks for keys by OAuth, and revoking it with all that it was granted."""

from typing import Any

from django.contrib import messages

from sessions_app.admin.links import change_url
from sessions_app.admin.views.base import FormPage, RowAction
from sessions_app.models import ApiKey, OAuthClient, OAuthGrant

SHOWN = 50


class AssistantForm(FormPage[OAuthClient]):
    """The page of an assistant: its state, what it was granted, and revoking it."""

    before = "operator/keys/assistant.html"

    def context(self) -> dict[str, Any]:
        keys = self.seen(ApiKey.objects.all())
        grants = OAuthGrant.objects.filter(client=self.row, key__in=keys).select_related("key__user")
        may_revoke = self.row.revoked_at is None and self.admin.has_change_permission(self.request)
        return {"client": self.row, "may_revoke": may_revoke, "grants": grants.order_by("-id")[:SHOWN], "most": SHOWN}


class RevokeAssistant(RowAction[OAuthClient]):
    """End all keys of an assistant at once, and have it ask for no others."""

    route, name = "<path:pk>/revoke/", "revoke"

    def change(self, client: OAuthClient) -> str:
        keys = client.revoke(by=self.actor)
        if keys is None:
            messages.error(self.request, f"{client} had been revoked before.")
        else:
            self.log(client, "Revoked.", f"{client} is revoked, and {keys} of its keys that were not yet.")
        return change_url(client)
