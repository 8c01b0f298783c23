"""`delete_session`: a session goes with its transcript and its archives; what was remembered of it stays."""

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
    """Delete a session, in the caller's transaction; its files go when that is committed.

    The queue writes files that others are in as well again without it.

    Args:
        session: of the acting user.
        actor: who asks, for the event log.

    Raises:
        CannotDelete: it is under legal hold, or retention is at work on it.
    """
    claimed = Session.objects.claim_archive(session.pk)
    if claimed is None:
        raise CannotDelete("The session is being archived. Try again later.")
    # Locked whole: from now on nobody adds anything that refers to it.
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
