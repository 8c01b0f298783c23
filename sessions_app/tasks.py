"""What the queue calls of the transcript."""

from sessions_app.people import erase


def remove_archives(user_pk: int) -> None:
    """Remove the archived files of somebody who was erased."""
    erase.remove_archives(user_pk)
