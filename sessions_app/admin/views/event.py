"""The page of an event; that of an erasure shows the receipt."""

from typing import Any

from sessions_app.admin.views.base import FormPage
from sessions_app.models import Event
from sessions_app.people.erase import ERASED_EVENT


def has_receipt(event: Event) -> bool:
    """Return whether it is the event of an erasure with a receipt. Earlier releases recorded none."""
    return event.type == ERASED_EVENT and "left" in event.payload


class EventForm(FormPage[Event]):
    """The page of an event."""

    after = "operator/events/receipt.html"

    def context(self) -> dict[str, Any]:
        event = self.row
        if not has_receipt(event):
            return {}
        rows, left = event.payload["rows"], event.payload["left"]
        searched = [(kind, rows.get(kind, 0), number) for kind, number in left.items()]
        return {
            "receipt": event.payload,
            "erased_at": event.created_at,
            "erased": sorted((each for each in searched if each[1] or each[2]), key=lambda each: -each[1]),
            "without_rows": [kind for kind, number, remaining in searched if not number and not remaining],
            "erased_rows": sum(rows.values()),
            "left_rows": sum(left.values()),
        }
