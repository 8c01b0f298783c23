"""`delete_session`: delete a session with its transcript and archives. Memory derived from it stays."""

from functools import partial

from django.db import transaction

from sessions_app.models import Event, Session
from sessions_app.refusals import Conflict
from sessions_app.retention import archive_files
from sessions_app.retention.rewrite import remove_archives

DELETED_EVENT = "session_deleted"


class CannotDelete(Conflict):
    """The session can't be deleted now. The message says why."""


def delete_session(session: Session, *, actor: str) -> None:
    """Delete a session in the caller's transaction. Its files are deleted after the commit.

    If a file also contains other sessions, a job rewrites it without this one.

    Args:
        session: A session of the acting user.
        actor: The actor, for the event log.

    Raises:
        CannotDelete: It is under legal hold, or is being archived.
    """
    claimed = Session.objects.claim_archive(session.pk)
    if claimed is None:
        raise CannotDelete("The session is being archived. Try again later.")
    # The full lock prevents new rows from referring to the session.
    if Session.objects.select_for_update().get(pk=session.pk).legal_hold:
        raise CannotDelete("The session is under legal hold. Release the hold first.")
    Event.objects.create(
        type=DELETED_EVENT,
        actor=actor,
        user_pk=session.user_id,
        session_pk=session.pk,
        payload={"message_count": session.message_count},
    )
    folder = archive_files.folder_of(session)
    remove_archives(session.user_id, session.archives.all())
    session.delete()
    transaction.on_commit(partial(archive_files.remove, folder), robust=True)
