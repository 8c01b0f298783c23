"""`rewrite_archives`: write files again without the turns that went from them.

A file is never changed. When a session is deleted or restored, or its month goes into another file, its row goes or
names that one. A file that no row names any more is removed once that is committed. If other sessions are in it as
well, the queue writes those into a new file: it is read back, one transaction names it in their rows, and then the old
file is removed. A crash leaves the entry in the queue, and at most a surplus file, which the person's next run of
retention removes.
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
    """Another session of the file went while it was written again."""


def remove_archives(user_pk: int, archives: QuerySet[Archive]) -> None:
    """Delete archives of a person, in the caller's transaction; the turns in their files go when that is committed."""
    with connection.cursor() as cursor:
        # Where their files are at the moment they go: another transaction may just have written one of them again.
        cursor.execute(_REMOVE_SQL, [list(archives.values_list("pk", flat=True)), user_pk])
        names = {name for (name,) in cursor}
    let_go(user_pk, names)


def let_go(user_pk: int, names: Collection[str]) -> None:
    """Have files rid of the turns that no row tells of any more, once the caller's transaction is committed.

    Args:
        user_pk: Whose files they are.
        names: Of files from which archives went in this transaction.
    """
    rows = Archive.objects.filter(user_id=user_pk, name__in=names)
    shared = set(rows.values_list("name", flat=True)) if names else set()
    if shared:
        call_wanted.send(None, function=REWRITE_TASK, args=[user_pk, sorted(shared)], user_pk=user_pk)
    transaction.on_commit(partial(archive_files.discard, set(names) - shared), robust=True)


def rewrite_archives(user_pk: int, names: Collection[str]) -> None:
    """Write files of a person again without the turns that no row tells of.

    Raises:
        ArchiveError: The storage fails, or a file is damaged. It stays as it is, and the queue tries again.
    """
    for name in names:
        while not _is_rewritten(user_pk, name):
            pass


def _is_rewritten(user_pk: int, name: str) -> bool:
    """Write a file again; return False if another session of it went meanwhile."""
    try:
        with transaction.atomic(), ExitStack() as undo:
            if archive_files.claim_in_turn(user_pk):
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
