"""`rewrite_archives`: rewrite archive files to remove deleted or restored turns.

A file is never changed. If a session is deleted, restored, or copied to another file, no row refers to its span in the
old file anymore. If no row refers to the file, it is removed after the commit. Otherwise, a job copies the other spans
to a new file and reads it back, updates their rows in one transaction, and then removes the old file. After a crash,
the job is retried, and an unused file may remain. The person's next run of retention removes it.
"""

from collections.abc import Collection
from contextlib import ExitStack
from functools import partial

from django.db import connection, transaction
from django.db.models import QuerySet

from sessions_app.models import Archive
from sessions_app.retention import archive_files
from sessions_app.signals import call_wanted

REWRITE_TASK = "sessions_app.tasks.rewrite_archives"

_REMOVE_SQL = "DELETE FROM sessions_app_archive WHERE id = ANY(%s) AND user_id = %s RETURNING name"


class ArchivesChanged(Exception):
    """The archive of another session was removed while its file was rewritten."""


def remove_archives(user_pk: int, archives: QuerySet[Archive]) -> None:
    """Delete archives of a person in the caller's transaction. Their turns are removed from files after the commit."""
    with connection.cursor() as cursor:
        # Returns the current file names, because another transaction may just have rewritten a file.
        cursor.execute(_REMOVE_SQL, [list(archives.values_list("pk", flat=True)), user_pk])
        names = {name for (name,) in cursor}
    remove_unused_spans(user_pk, names)


def remove_unused_spans(user_pk: int, names: Collection[str]) -> None:
    """After this transaction commits, remove the unused spans of these files, and files with only unused spans."""
    rows = Archive.objects.filter(user_id=user_pk, name__in=names)
    shared = set(rows.values_list("name", flat=True)) if names else set()
    if shared:
        call_wanted.send(None, function=REWRITE_TASK, args=[user_pk, sorted(shared)], user_pk=user_pk)
    transaction.on_commit(partial(archive_files.discard, set(names) - shared), robust=True)


def rewrite_archives(user_pk: int, names: Collection[str]) -> None:
    """Rewrite a person's files to remove spans that no row refers to. Raise ArchiveError if that fails."""
    for name in names:
        while not _try_rewrite(user_pk, name):
            pass


def _try_rewrite(user_pk: int, name: str) -> bool:
    try:
        with transaction.atomic(), ExitStack() as undo:
            if archive_files.wait_and_claim(user_pk):
                _rewrite(user_pk, name, undo)
            undo.pop_all()
    except ArchivesChanged:
        return False
    return True


def _rewrite(user_pk: int, name: str, undo: ExitStack) -> None:
    archives = list(Archive.objects.filter(user_id=user_pk, name=name).order_by("byte_offset"))
    if archives:
        with archive_files.new_file() as file:
            spans = [file.copy(archive) for archive in archives]
            new = archive_files.store(file, archive_files.name_of(user_pk, archives[0].month))
        undo.callback(archive_files.discard, [new])
        archive_files.sync_folder(user_pk)
        for archive, span in zip(archives, spans, strict=True):
            row = Archive.objects.filter(pk=archive.pk, user_id=user_pk, name=name)
            if not row.update(name=new, byte_offset=span.byte_offset):
                raise ArchivesChanged
    transaction.on_commit(partial(archive_files.discard, [name]), robust=True)
