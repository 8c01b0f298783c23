"""What the queue calls of the transcript."""

from sessions_app.people import erase
from sessions_app.retention import rewrite


def remove_archives(user_pk: int) -> None:
    """Remove the archived files of somebody who was erased."""
    erase.remove_archives(user_pk)


def rewrite_archives(user_pk: int, names: list[str]) -> None:
    """Write files that lost turns again without them."""
    rewrite.rewrite_archives(user_pk, names)
