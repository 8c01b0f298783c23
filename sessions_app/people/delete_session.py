"""`delete_session`: delete a session with its transcript and its archives. The memory made from it stays."""

from functools import partial

from django.db import transaction

from sessions_app.models import Event, Session
from sessions_app.retention import archive_files


class CannotDelete(Exception):
    """The session can't be deleted now. The message says why."""


def delete_session(session: Session, *, actor: str) -> None:
    """Delete a session in the caller's transaction. Its files are removed after the commit.

    Args:
        session: A session of the acting user.
        actor: Who asks, for the event log.

    Raises:
        CannotDelete: The session is under legal hold, or retention is working on it.
    """
    claimed = Session.objects.claim_archive(session.pk)
    if claimed is None:
        raise CannotDelete("The session is being archived; try again later.")
    # The strongest lock: from now on nobody adds a row that refers to the session.
    if Session.objects.select_for_update().get(pk=session.pk).legal_hold:
        raise CannotDelete("The session is under legal hold.")
    Event.objects.create(
        type="session_deleted",
        actor=actor,
        user_pk=session.user_id,
        session_pk=session.pk,
        payload={"message_count": session.message_count},
    )
    folder = archive_files.folder_of(session)
    session.delete()
    transaction.on_commit(partial(archive_files.remove, folder), robust=True)
