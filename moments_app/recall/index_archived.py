"""`index_archived`: index turns that an earlier release archived without index rows, so that searches find them.

Each job handles one person. It reads each archive and writes its rows in a separate transaction, so a killed job
continues with the next archive.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

import structlog
from django.db import connection, transaction

from moments_app.jobs.process import (
    Asked,
    ClaimLost,
    Lane,
    Process,
    ProcessInput,
    Progress,
    Skipped,
    Timing,
    Waits,
)
from moments_app.models import Job
from moments_app.recall.index_words import index_rows
from sessions_app.clock import database_now
from sessions_app.models import Archive, Message, Session
from sessions_app.models.message import MessageQuerySet
from sessions_app.retention.restore import CannotRestore, put_back

BATCH = 500  # turns indexed at a time
PEOPLE = 10_000  # per sweep
BUSY_PAUSE = timedelta(minutes=1)  # pause while another process changes the archives of a session

# Uses two aggregates, because distributed tables don't allow a subquery for each session.
_WITHOUT_ROWS_SQL = """
SELECT user_id, session_id FROM (
    SELECT user_id, session_id, sum(turn_count) AS turns FROM sessions_app_archive
    WHERE %(user)s::bigint IS NULL OR user_id = %(user)s GROUP BY user_id, session_id
) archived LEFT JOIN (
    SELECT user_id, session_id, count(*) AS turns FROM sessions_app_message
    WHERE kind = 'archived' AND (%(user)s::bigint IS NULL OR user_id = %(user)s) GROUP BY user_id, session_id
) found USING (user_id, session_id)
WHERE archived.turns > COALESCE(found.turns, 0) ORDER BY user_id, session_id
"""

logger = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ArchivedInput(ProcessInput):
    """The number of sessions that still have archived turns without rows."""

    left: int


class IndexArchived(Process[ArchivedInput, None]):
    """Adds missing rows for a person's archived turns."""

    name = "index_archived"
    title = "Index archived messages"
    makes = "archived messages in searches"
    lane = Lane.BULK
    is_upkeep = True
    sweep_timing = Timing(daily_at=time(2, 30))

    def prepare(self, job: Job, progress: Progress) -> Skipped | None:
        """Write the rows, one archive at a time.

        Raises:
            Waits: another process is changing the archives of a session.
            ClaimLost: another worker took over the job, or the job was canceled.
            ArchiveError: a file is missing or damaged.
        """
        sessions = [session for _user, session in without_rows(job.user_id)]
        archives = Archive.objects.filter(session__in=sessions, user=job.user_id).order_by("pk")
        if not archives:
            return Skipped("all archived turns are already indexed")
        for number, archive in enumerate(archives):
            progress(number, len(archives))
            _add_rows(job, archive)
        return None

    def claim(self, job: Job) -> ArchivedInput:
        """Count the remaining sessions."""
        return ArchivedInput(None, sum(1 for _ in without_rows(job.user_id)))

    def think(self, input: ArchivedInput, engine: None, progress: Progress) -> None:
        """Do nothing: this process has no engine."""

    def commit(self, job: Job, input: ArchivedInput, answer: None) -> None:
        """Complete the job."""
        if not job.is_claimed():
            raise ClaimLost
        job.complete({"sessions_left": input.left})

    def sweep(self, *, dry_run: bool = False) -> Asked:
        """Queue a job for each person with archived turns that aren't indexed yet, unless an earlier one failed."""
        failed = set(Job.objects.filter(process=self.name, status=Job.Status.FAILED).values_list("user_id", flat=True))
        people = [pk for pk in dict.fromkeys(user for user, _session in without_rows(None)) if pk not in failed]
        for user_id in () if dry_run else people[:PEOPLE]:
            Job.objects.request(self.name, user_id=user_id, requested_by=self.name)
        return Asked(len(people[:PEOPLE]))


def without_rows(user_pk: int | None) -> Iterator[tuple[int, int]]:
    """Yield the primary keys of the person and the session for each session that has archived turns without rows.

    Args:
        user_pk: the person's primary key; None: all people.
    """
    with connection.cursor() as cursor:
        cursor.execute(_WITHOUT_ROWS_SQL, {"user": user_pk})
        yield from cursor.fetchall()


@transaction.atomic
def _add_rows(job: Job, archive: Archive) -> None:
    """Restore the turns of an archive, index their words, and remove their texts again."""
    if Session.objects.claim_archive(archive.session_id) is None:
        raise Waits(database_now() + BUSY_PAUSE, "The archives of a session are being changed.")
    current = Archive.objects.select_for_update(no_key=True).filter(pk=archive.pk).first()
    if current is None or _archived_in(current).count() >= current.turn_count:
        return
    try:
        with transaction.atomic():
            put_back(current)
            _index(current)
    except CannotRestore as error:  # a later message has the external_id of one of these turns
        logger.warning("archived turns can't be found", archive=current.name, reason=str(error))
        return
    if not current.block_sequences:  # the archive's file is a single block
        current.block_sequences, current.block_offsets = [current.first_sequence], [0]
        current.save(update_fields=["block_sequences", "block_offsets"])
    if not job.is_claimed():
        raise ClaimLost


def _index(archive: Archive) -> None:
    turns = _of(archive).turns()
    while batch := list(turns.order_by("sequence").values_list("pk", flat=True)[:BATCH]):
        index_rows(Message, [(archive.user_id, pk) for pk in batch])
        turns.filter(pk__in=batch).archive()


def _archived_in(archive: Archive) -> MessageQuerySet:
    return _of(archive).archived()


def _of(archive: Archive) -> MessageQuerySet:
    """Return the messages in the archive's range of its session and month."""
    month = datetime.combine(archive.month, time(), tzinfo=UTC)
    following = (month + timedelta(days=31)).replace(day=1)
    sequences = (archive.first_sequence, archive.last_sequence)
    own = Message.objects.filter(session=archive.session_id, user=archive.user_id, sequence__range=sequences)
    return own.filter(created_at__gte=month, created_at__lt=following)
