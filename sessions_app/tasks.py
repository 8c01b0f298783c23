"""Background functions of the transcript."""

from sessions_app.people import erase
from sessions_app.retention import archive_files


def remove_archives(user_pk: int, erasure_id: str = "") -> None:
    """Remove the archived files of an erased person. Tasks that earlier releases queued have no `erasure_id`."""
    erase.remove_archives(user_pk, erasure_id)


def rewrite_archives(user_pk: int, names: list[str]) -> None:
    archive_files.rewrite_archives(user_pk, names)
