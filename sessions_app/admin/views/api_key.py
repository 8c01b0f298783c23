"""The page of an API key, and the action that revokes one."""

from typing import Any

from django.contrib import messages

from sessions_app.admin.links import change_url
from sessions_app.admin.views.base import FormPage, RowAction, RowPage
from sessions_app.admin.views.daily_limit import usage_context
from sessions_app.models import ApiKey


class ApiKeyForm(FormPage[ApiKey]):
    """The page of a key: its state, the button that revokes it, and its usage."""

    before = "operator/keys/key.html"
    after = "operator/limits/usage.html"

    def context(self) -> dict[str, Any]:
        key = self.row
        may_revoke = key.revoked_at is None and self.admin.has_change_permission(self.request)
        return usage_context(self.request, key) | {"key": key, "may_revoke": may_revoke}


class MadeApiKey(RowPage[ApiKey]):
    """The page that shows the text of a new key once."""

    template_name = "operator/keys/made.html"

    def get_title(self) -> str:
        return f"Key {self.row.name}"

    def context(self) -> dict[str, Any]:
        return {"key": self.row, "text": self.request.issued_text}  # type: ignore[attr-defined]


class RevokeApiKey(RowAction[ApiKey]):
    """Revokes a key."""

    route, name = "<path:pk>/revoke/", "revoke"

    def change(self, key: ApiKey) -> str:
        if key.revoke():
            self.log(key, "Revoked.", f"{key} is revoked.")
        else:
            messages.error(self.request, f"{key} was already revoked.")
        return change_url(key)
