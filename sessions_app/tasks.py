"""Background functions of the transcript."""

from sessions_app.people import erase
from sessions_app.retention import rewrite


def remove_archives(user_pk: int) -> None:
    """Remove the archived files of an erased person."""
    erase.remove_archives(user_pk)


def rewrite_archives(user_pk: int, names: list[str]) -> None:
    """Rewrite files without their removed turns."""
    rewrite.rewrite_archives(user_pk, names)
