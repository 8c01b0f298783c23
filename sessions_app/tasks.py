"""The transcript's tasks, which the queue calls."""

from sessions_app.people import erase
from sessions_app.retention import retain as retention


def retain() -> None:
    """Archive or delete turns past their keep-by date."""
    retention.retain()


def remove_archives(user_pk: int) -> None:
    """Remove the archived files of an erased person."""
    erase.remove_archives(user_pk)
