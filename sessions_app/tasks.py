"""What the queue calls of the transcript."""

from sessions_app.people import erase
from sessions_app.retention import retain as retention


def retain() -> None:
    """Archives or deletes turns past their keep-by date."""
    retention.retain()


def remove_archives(user_pk: int) -> None:
    """Removes the archived files of somebody who was erased."""
    erase.remove_archives(user_pk)
