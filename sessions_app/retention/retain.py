"""`retain`: archive or delete turns past their keep-by date once memory covers them.

A session's oldest turns go, up to the first one that arrived too recently, is not covered yet, or is still live. Their
archive is written, synced and read back. Then one transaction names it and removes exactly the texts that it holds
from the table. An archived turn keeps its row, its words and its vectors, so that searches still find it. A crash at
any point leaves at most a surplus file, which the session's next run removes.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import chain

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F, Max, Min, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import TruncMonth
from django.utils import timezone

from sessions_app.models import Archive, Event, Message, Session
from sessions_app.models.message import MessageQuerySet
from sessions_app.retention import archive_files
from sessions_app.retention.archive_files import ArchiveError, PackedFile, TurnsHash
from sessions_app.signals import turns_overdue

ACTOR = "process:retain"
SESSIONS_AT_ONCE = 500
TAKEN_AT_ONCE = 1_000
FAILURES_SHOWN = 10  # in a result; the event log has all of them

logger = structlog.get_logger(__name__)


class SessionChanged(Exception):
    """The session or its turns changed in the meantime: the session is left for the next run."""


@dataclass(frozen=True)
class Retained:
    """The result of a run.

    Args:
        sessions: Sessions that turns were removed from.
        archived_turns: Turns that are in an archive now, and no longer in the transcript.
        archived_bytes: Bytes by which the archives grew.
        deleted_turns: Turns that are gone for good.
        overdue_sessions: Sessions with turns past their keep-by date that stay because memory doesn't cover them yet.
        held_sessions: Sessions with such turns that are under legal hold.
        failed_sessions: Sessions left as they were because the storage failed.
        failures: A sentence for each of the first failed sessions.
        seconds: How long the run took.
    """

    sessions: int = 0
    archived_turns: int = 0
    archived_bytes: int = 0
    deleted_turns: int = 0
    overdue_sessions: int = 0
    held_sessions: int = 0
    failed_sessions: int = 0
    failures: tuple[str, ...] = ()
    seconds: float = 0.0

    def __add__(self, other: "Retained") -> "Retained":
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return Retained(**sums | {"failures": sums["failures"][:FAILURES_SHOWN]})

    def __str__(self) -> str:
        sentence = (
            f"{self.sessions} sessions: {self.archived_turns} turns archived, {self.archived_bytes} bytes; "
            f"{self.deleted_turns} turns deleted; kept: {self.overdue_sessions} sessions not covered by memory yet, "
            f"{self.held_sessions} under legal hold; {self.seconds:.1f} s"
        )
        if not self.failed_sessions:
            return sentence
        return f"{sentence}. {self.failed_sessions} sessions failed and are as they were: {' '.join(self.failures)}"

    def counts(self) -> dict[str, float]:
        """Return the numbers for the event log."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "failures"}


def retain(*, dry_run: bool = False) -> Retained:
    """Archive or delete turns past their keep-by date that memory covers.

    Args:
        dry_run: Find and count the same turns, and change nothing.
    """
    started = time.monotonic()
    retained = Retained()
    if settings.RETENTION.action == "off":
        return retained
    before = timezone.now() - timedelta(days=settings.RETENTION.transcript_days)
    for pk in _candidates(before):
        retained += _retain_session(pk, before, dry_run=dry_run)
    retained += Retained(seconds=round(time.monotonic() - started, 3))
    if not dry_run:
        Event.objects.create(type="memory_compaction_completed", actor=ACTOR, payload=retained.counts())
    return retained


# --- which sessions ---


def candidates(before: datetime) -> QuerySet[Session]:
    """Return sessions with a first turn that arrived before this time, unless turns were restored since."""
    kept = Message.objects.turns().filter(
        session=OuterRef("pk"), user=OuterRef("user_id"), sequence__gte=OuterRef("kept_from_sequence")
    )
    # The index `session_kept` finds the sessions with turns, and the index of turns the first turn of each.
    return (
        Session.objects.filter(Q(restored_at=None) | Q(restored_at__lt=before))
        .filter(last_sequence__gte=F("kept_from_sequence"))
        .alias(first_at=Subquery(kept.order_by("sequence").values("arrived_at")[:1]))
        .filter(first_at__lt=before)
        .order_by("pk")
    )


def _candidates(before: datetime) -> Iterator[int]:
    after = 0
    while batch := list(candidates(before).filter(pk__gt=after).values_list("pk", flat=True)[:SESSIONS_AT_ONCE]):
        yield from batch
        after = batch[-1]


# --- one session ---


@dataclass(frozen=True)
class RemovableTurns:
    """The oldest turns of a session, up to the first that has to stay.

    Args:
        turns: The turns.
        end: The sequence after the last of them.
        is_overdue: True if the turn at `end` is past its keep-by date as well.
    """

    turns: MessageQuerySet
    end: int
    is_overdue: bool


def _retain_session(pk: int, before: datetime, *, dry_run: bool) -> Retained:
    take = _TAKE[settings.RETENTION.action]
    try:
        with transaction.atomic():
            session = Session.objects.claim_archive(pk)
            if session is None:  # another run is working on it
                return Retained()
            if session.legal_hold:
                return Retained(held_sessions=1)
            removable = _removable_turns(session, before)
            is_empty = not removable.turns.exists()
            retained = Retained() if is_empty else take(session, removable, dry_run=dry_run)
    except SessionChanged as changed:
        logger.info("session left for the next run", session=pk, reason=str(changed))
        return Retained()
    except ArchiveError as error:
        return _failed(session, error, dry_run=dry_run)
    if removable.is_overdue and not dry_run:
        with transaction.atomic():
            if Session.objects.claim_archive(pk):  # it may have been deleted, or its person erased
                turns_overdue.send(sender=Session, session=session)
    return retained + Retained(overdue_sessions=int(removable.is_overdue))


def _removable_turns(session: Session, before: datetime) -> RemovableTurns:
    """Return the turns of the session up to the first that has to stay."""
    covered = Q(retracted_at__isnull=False) | Q(moment__isnull=False, sequence__lte=session.summarised_to)
    for first, last in Event.objects.left_out_of(session.user, session.pk):
        covered |= Q(sequence__range=(first, last))
    can_go = Q(arrived_at__lt=before, sequence__lt=session.live_from_sequence) & covered
    turns = session.messages.turns().filter(user_id=session.user_id, sequence__gte=session.kept_from_sequence)
    stays = turns.exclude(can_go).order_by("sequence").values_list("sequence", "arrived_at").first()
    end, arrived_at = stays or (session.last_sequence + 1, before)
    # The condition stands here again so that a turn that loses its coverage before it is locked is left out.
    return RemovableTurns(turns.filter(can_go, sequence__lt=end), end, arrived_at < before)


def _failed(session: Session | None, error: ArchiveError, *, dry_run: bool) -> Retained:
    assert session is not None
    logger.error("session not archived", session=session.pk, reason=str(error))
    if not dry_run:
        Event.objects.create(
            type="memory_compaction_failed",
            actor=ACTOR,
            user_pk=session.user_id,
            session_pk=session.pk,
            payload={"reason": str(error)},
        )
    return Retained(failed_sessions=1, failures=(f"session {session.session_id}: {error}",))


# --- delete ---


def _delete(session: Session, removable: RemovableTurns, *, dry_run: bool) -> Retained:
    count = removable.turns.count()
    if not dry_run:
        _lock(session)
        if _take_out(removable.turns, MessageQuerySet.delete_unread).count != count:
            raise SessionChanged("turns changed")
        _keep_from(session, removable.end)
    return Retained(sessions=1, deleted_turns=count)


def _lock(session: Session) -> None:
    """Lock a claimed session.

    Raises:
        SessionChanged: The session is gone, or it changed in a way that keeps its turns.
    """
    now = Session.objects.locked().filter(pk=session.pk).first()
    if now is None:
        raise SessionChanged("it is gone")
    if now.legal_hold or now.live_from_sequence < session.live_from_sequence:
        raise SessionChanged("its turns have to stay")


def _take_out(turns: MessageQuerySet, take: Callable[[MessageQuerySet], int]) -> TurnsHash:
    """Take turns of a locked session out of its transcript.

    Args:
        turns: All of the turns.
        take: Does it for some of them, and returns for how many.

    Returns:
        A hash of the turns as they were.

    Raises:
        SessionChanged: A turn changed just now.
    """
    taken, after = TurnsHash(), -1
    hashed = turns.select_for_update(of=("self",)).order_by("sequence").annotate(sha256=archive_files.LINE_SHA256)
    rows = hashed.values_list("sequence", "sha256")
    while batch := list(rows.filter(sequence__gt=after)[:TAKEN_AT_ONCE]):
        for _sequence, sha256 in batch:
            taken.add(bytes(sha256))
        first, after = batch[0][0], batch[-1][0]
        if take(turns.filter(sequence__range=(first, after))) != len(batch):
            raise SessionChanged("turns changed")
    return taken


def _keep_from(session: Session, sequence: int) -> None:
    session.kept_from_sequence = sequence
    session.save(update_fields=["kept_from_sequence"])


# --- archive ---


@dataclass
class MonthOfTurns:
    """The removable turns of one month, which go into one file.

    Args:
        month: The first day of the month.
        turns: The turns.
        first_sequence, last_sequence: Of the turns.
        old: The existing archive of this month, if any.
        added: A hash of the turns as they were written.
    """

    month: date
    turns: MessageQuerySet
    first_sequence: int
    last_sequence: int
    old: Archive | None
    added: TurnsHash = field(default_factory=TurnsHash)

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the existing archive, then those of the added turns."""
        before = archive_files.read(self.old) if self.old else iter(())
        return chain(before, self.added.counted(archive_files.lines_of(self.turns)))

    def record(self, session: Session, name: str, content: PackedFile) -> None:
        """Store the file's name and figures in the month's row."""
        row = {
            "user_id": session.user_id,
            "name": name,
            "first_sequence": self.old.first_sequence if self.old else self.first_sequence,
            "last_sequence": self.last_sequence,
            "turn_count": content.turns.count,
            "byte_count": content.byte_count,
            "sha256": content.sha256,
            "block_sequences": [sequence for sequence, _ in content.blocks],
            "block_offsets": [offset for _, offset in content.blocks],
        }
        Archive.objects.update_or_create(session=session, month=self.month, defaults=row)


def _months(session: Session, turns: MessageQuerySet) -> list[MonthOfTurns]:
    """Split turns into months. Times may be in any order, so a month's turns need not be consecutive."""
    by_month = turns.values(month=TruncMonth("created_at", tzinfo=UTC))
    ranges = by_month.annotate(first=Min("sequence"), last=Max("sequence")).order_by("month")
    old = {archive.month: archive for archive in session.archives.all()}
    months = []
    for month, first, last in ranges.values_list("month", "first", "last"):
        following = (month + timedelta(days=31)).replace(day=1)
        own = turns.filter(sequence__range=(first, last), created_at__gte=month, created_at__lt=following)
        months.append(MonthOfTurns(month.date(), own, first, last, old.get(month.date())))
    return months


def _archive(session: Session, removable: RemovableTurns, *, dry_run: bool) -> Retained:
    retained = Retained(sessions=1)
    if not dry_run:
        archive_files.sweep(session)
    with ExitStack() as undo:
        written: list[tuple[MonthOfTurns, str, PackedFile]] = []
        for month in _months(session, removable.turns):
            with archive_files.packed(month.lines()) as content:
                grown = content.byte_count - (month.old.byte_count if month.old else 0)
                retained += Retained(archived_turns=month.added.count, archived_bytes=grown)
                if not dry_run:
                    name = archive_files.name_of(session, month.month, month.last_sequence)
                    name = archive_files.store(content, name)
                    undo.callback(archive_files.discard, [name])
                    written.append((month, name, content))
        if not dry_run:
            archive_files.sync_folder(session)
            _replace(session, written)
            _keep_from(session, removable.end)
        undo.pop_all()
    return retained


def _replace(session: Session, written: list[tuple[MonthOfTurns, str, PackedFile]]) -> None:
    """Record the files, and remove the texts that they hold from the table.

    Raises:
        SessionChanged: The session or a turn is no longer as it was when it was written.
    """
    _lock(session)
    for month, name, content in written:
        month.record(session, name, content)
        if not _take_out(month.turns, MessageQuerySet.archive).equal(month.added):
            raise SessionChanged("turns changed")
    old = [month.old.name for month, _, _ in written if month.old]
    transaction.on_commit(partial(archive_files.discard, old), robust=True)


_TAKE: dict[str, Callable[..., Retained]] = {"archive": _archive, "delete": _delete}
