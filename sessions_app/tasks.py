"""What the queue calls."""

from sessions_app.processes import retain as retention


def retain() -> None:
    """Archives or deletes turns past their keep-by date."""
    retention.retain()
