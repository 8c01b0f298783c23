"""`retain`: archive or delete turns that are past the retention period, once memory covers them.

A session's oldest turns are removed, up to the first that is too recent, not covered by memory, or live. A person's
sessions are processed together. Their turns are written to one file per month, and the file is synced and read back.
Then one transaction records the file, and removes the same texts from the table. The rows, words and vectors of
archived turns stay, so searches still find them. After a crash, an unused file may remain. The person's next run
removes it.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime, timedelta
from itertools import chain, groupby
from operator import attrgetter, itemgetter

import structlog
from django.conf import settings
from django.db import connection, transaction
from django.db.models import Max, Min, Q, prefetch_related_objects
from django.db.models.functions import TruncMonth
from django.utils import timezone

from sessions_app.models import Archive, Event, Session
from sessions_app.models.message import MessageQuerySet
from sessions_app.retention import archive_files
from sessions_app.retention.archive_files import ArchiveError, Span, TurnsHash
from sessions_app.signals import turns_overdue

ACTOR = "process:retain"
SESSIONS_PER_PAGE = 50_000  # sessions per page; a person's sessions on a page are processed together
MAX_GROUP_SESSIONS = 50
MAX_GROUP_TURNS = 2_000  # maximum turns of sessions that are processed together; a longer session is alone
REMOVAL_BATCH_SIZE = 1_000
UPDATED_FIELDS = (  # fields of an existing archive to update
    "name",
    "byte_offset",
    "byte_count",
    "sha256",
    "turn_count",
    "last_sequence",
    "block_sequences",
    "block_offsets",
)
FAILURES_SHOWN = 10  # maximum failures in the result; the event log has all of them

logger = structlog.get_logger(__name__)


class SessionChanged(Exception):
    """The session or its turns have changed. The next run processes the session."""


@dataclass(frozen=True)
class RetentionResult:
    """The result of a run."""

    sessions: int = 0  # sessions that turns were removed from
    archived_turns: int = 0  # turns whose text was moved from the transcript to an archive
    archived_bytes: int = 0  # number of bytes by which archives grew
    deleted_turns: int = 0  # turns that were permanently deleted
    overdue_sessions: int = 0  # sessions with turns past the retention period, kept because memory doesn't cover them
    held_sessions: int = 0  # sessions under legal hold; their turns are kept
    failed_sessions: int = 0  # sessions left unchanged because the storage failed
    failures: tuple[str, ...] = ()  # a sentence for each of the first failed sessions
    seconds: float = 0.0

    def __add__(self, other: "RetentionResult") -> "RetentionResult":
        sums = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return RetentionResult(**sums | {"failures": sums["failures"][:FAILURES_SHOWN]})

    def __str__(self) -> str:
        sentence = (
            f"{self.sessions} sessions: {self.archived_turns} turns archived, {self.archived_bytes} bytes; "
            f"{self.deleted_turns} turns deleted; kept: {self.overdue_sessions} sessions not covered by memory yet, "
            f"{self.held_sessions} under legal hold; {self.seconds:.1f} s"
        )
        if not self.failed_sessions:
            return sentence
        return f"{sentence}. {self.failed_sessions} sessions failed and were not changed: {' '.join(self.failures)}"

    def counts(self) -> dict[str, float]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "failures"}


def retain(*, dry_run: bool = False) -> RetentionResult:
    """Archive or delete turns that are past the retention period and already in memory.

    `dry_run`: find and count the same turns, but change nothing.
    """
    started = time.monotonic()
    retained = RetentionResult()
    if settings.RETENTION.action == "off":
        return retained
    before = timezone.now() - timedelta(days=settings.RETENTION.transcript_days)
    for user_pk, sessions in _groups(before):
        retained += _retain_group(user_pk, sessions, before, dry_run=dry_run)
    retained += RetentionResult(seconds=round(time.monotonic() - started, 3))
    if not dry_run:
        Event.objects.create(type="memory_compaction_completed", actor=ACTOR, payload=retained.counts())
    return retained


# --- which sessions ---


# Uses the index `session_kept` and the index of turns. Doesn't use a subquery per session, because this is not possible
# if turns are distributed. The last row contains the end of the page and the number of its sessions.
_CANDIDATES_SQL = """
WITH kept AS MATERIALIZED (
    SELECT id, user_id, kept_from_sequence, last_sequence FROM sessions_app_session
    WHERE id > %(after)s AND last_sequence >= kept_from_sequence AND (restored_at IS NULL OR restored_at < %(before)s)
    ORDER BY id LIMIT %(most)s
)
SELECT kept.id, kept.user_id, kept.last_sequence + 1 - kept.kept_from_sequence
FROM kept JOIN sessions_app_message turn ON turn.session_id = kept.id AND turn.user_id = kept.user_id
    AND turn.sequence = kept.kept_from_sequence AND turn.kind = 'turn'
WHERE turn.arrived_at < %(before)s
UNION ALL SELECT max(id), NULL, count(*) FROM kept
"""


def _pages(before: datetime) -> Iterator[list[tuple[int, int, int]]]:
    """Yield pages of sessions whose first turn arrived before this time and that were not restored after it.

    Each item is (primary key of the session, primary key of its person, number of its turns).
    """
    after, count = 0, SESSIONS_PER_PAGE
    while count == SESSIONS_PER_PAGE:
        with connection.cursor() as cursor:
            cursor.execute(_CANDIDATES_SQL, {"before": before, "after": after, "most": SESSIONS_PER_PAGE})
            rows = sorted(cursor.fetchall(), key=lambda row: (row[1] is None, row[1], row[0]))
        after, _, count = rows.pop()
        yield rows


def _groups(before: datetime) -> Iterator[tuple[int, list[int]]]:
    """Yield (primary key of a person, primary keys of the person's sessions to process together)."""
    for page in _pages(before):
        for user_pk, theirs in groupby(page, key=itemgetter(1)):
            for portion in _portions(theirs):
                yield user_pk, portion


def _portions(sessions: Iterable[tuple[int, int, int]]) -> Iterator[list[int]]:
    portion: list[int] = []
    turns = 0
    for pk, _user_pk, count in sessions:
        if portion and (len(portion) == MAX_GROUP_SESSIONS or turns + count > MAX_GROUP_TURNS):
            yield portion
            portion, turns = [], 0
        portion.append(pk)
        turns += count
    yield portion


# --- sessions of one person ---


@dataclass(frozen=True)
class RemovableTurns:
    """The oldest turns of a session, up to the first one that must stay."""

    session: Session
    turns: MessageQuerySet
    end: int  # the sequence number of the first turn that must stay
    is_overdue: bool  # whether the turn at `end` is also past the retention period


def _retain_group(user_pk: int, pks: Sequence[int], before: datetime, *, dry_run: bool) -> RetentionResult:
    """Archive or delete turns of a person's sessions in one transaction. If that fails, retry each session alone."""
    remove = _ACTIONS[settings.RETENTION.action]
    try:
        with transaction.atomic():
            if not archive_files.claim(user_pk):  # another run is processing the person
                return RetentionResult()
            sessions = Session.objects.claim_archives(pks)
            held = sum(session.legal_hold for session in sessions)
            removable = [_removable_turns(session, before) for session in sessions if _is_removable(session, before)]
            retained = RetentionResult(held_sessions=held) + remove(removable, dry_run=dry_run)
    except (SessionChanged, ArchiveError) as error:
        if len(pks) > 1:
            return sum((_retain_group(user_pk, [pk], before, dry_run=dry_run) for pk in pks), RetentionResult())
        return _unchanged(pks[0], error, dry_run=dry_run)
    overdue = [each.session for each in removable if each.is_overdue]
    if not dry_run:
        for session in overdue:
            _request_settling(session)
    return retained + RetentionResult(overdue_sessions=len(overdue))


def _is_removable(session: Session, before: datetime) -> bool:
    # The session may have been restored after it was found.
    is_restored = session.restored_at is not None and session.restored_at >= before
    return not session.legal_hold and not is_restored


def _request_settling(session: Session) -> None:
    with transaction.atomic():
        if Session.objects.claim_archive(session.pk):  # the session may have been deleted
            turns_overdue.send(sender=Session, session=session)


def _removable_turns(session: Session, before: datetime) -> RemovableTurns:
    covered = Q(retracted_at__isnull=False) | Q(moment__isnull=False, sequence__lte=session.summarized_to)
    for first, last in Event.objects.deleted_moment_ranges(session.user, session.pk):
        covered |= Q(sequence__range=(first, last))
    can_go = Q(arrived_at__lt=before, sequence__lt=session.live_from_sequence) & covered
    turns = session.messages.turns().filter(user_id=session.user_id, sequence__gte=session.kept_from_sequence)
    stays = turns.exclude(can_go).order_by("sequence").values_list("sequence", "arrived_at").first()
    end, arrived_at = stays or (session.last_sequence + 1, before)
    # Repeat the condition in the filter, because memory may no longer cover a turn by the time it is locked.
    return RemovableTurns(session, turns.filter(can_go, sequence__lt=end), end, arrived_at < before)


def _unchanged(pk: int, error: SessionChanged | ArchiveError, *, dry_run: bool) -> RetentionResult:
    if isinstance(error, SessionChanged):
        logger.info("session left for the next run", session=pk, reason=str(error))
        return RetentionResult()
    logger.error("session not archived", session=pk, reason=str(error))
    session = Session.objects.filter(pk=pk).first()
    if session is None:
        return RetentionResult()
    if not dry_run:
        Event.objects.create(
            type="memory_compaction_failed",
            actor=ACTOR,
            user_pk=session.user_id,
            session_pk=pk,
            payload={"reason": str(error)},
        )
    return RetentionResult(failed_sessions=1, failures=(f"session {session.session_id}: {error}",))


# --- delete ---


def _delete(removable: Sequence[RemovableTurns], *, dry_run: bool) -> RetentionResult:
    counts = [each.turns.count() for each in removable]
    going = [(each, count) for each, count in zip(removable, counts, strict=True) if count]
    if going and not dry_run:
        _lock([each.session for each, _ in going])
        for each, count in going:
            if _remove_turns(each.turns, MessageQuerySet.delete_unread).count != count:
                raise SessionChanged("turns changed")
        _set_first_turns([each for each, _ in going])
    return RetentionResult(sessions=len(going), deleted_turns=sum(counts))


def _lock(sessions: Sequence[Session]) -> None:
    """Lock claimed sessions. Raise SessionChanged if a session is gone, or if its turns must stay."""
    locked = Session.objects.locked().filter(pk__in=[session.pk for session in sessions]).order_by("pk")
    now = {session.pk: session for session in locked}
    for session in sessions:
        if session.pk not in now:
            raise SessionChanged("it no longer exists")
        if now[session.pk].legal_hold or now[session.pk].live_from_sequence < session.live_from_sequence:
            raise SessionChanged("its turns must stay")


def _remove_turns(turns: MessageQuerySet, remove: Callable[[MessageQuerySet], int]) -> TurnsHash:
    """Remove turns of a locked session. Return their hash. Raise SessionChanged if a turn has just changed.

    `remove` removes a batch of turns, and returns their number.
    """
    removed, after = TurnsHash(), -1
    hashed = turns.select_for_update(of=("self",)).order_by("sequence").annotate(sha256=archive_files.LINE_SHA256)
    rows = hashed.values_list("sequence", "sha256")
    while batch := list(rows.filter(sequence__gt=after)[:REMOVAL_BATCH_SIZE]):
        for _sequence, sha256 in batch:
            removed.add(bytes(sha256))
        first, after = batch[0][0], batch[-1][0]
        if remove(turns.filter(sequence__range=(first, after))) != len(batch):
            raise SessionChanged("turns changed")
        if len(batch) < REMOVAL_BATCH_SIZE:
            break
    return removed


def _set_first_turns(removed: Sequence[RemovableTurns]) -> None:
    for each in removed:
        each.session.kept_from_sequence = each.end
    Session.objects.bulk_update([each.session for each in removed], ["kept_from_sequence"])


# --- archive ---


@dataclass
class MonthOfTurns:
    """The removable turns of one session and month. They are written to one span of a file."""

    session: Session
    month: date  # the first day
    turns: MessageQuerySet
    first_sequence: int
    last_sequence: int
    old: Archive | None  # the existing archive of this month
    added: TurnsHash = field(default_factory=TurnsHash)  # the hash of the turns that were written

    def lines(self) -> Iterator[bytes]:
        before = archive_files.read(self.old) if self.old else iter(())
        return chain(before, self.added.counted(archive_files.lines_of(self.turns)))

    def growth(self, span: Span) -> RetentionResult:
        before = self.old.byte_count if self.old else 0
        return RetentionResult(archived_turns=self.added.count, archived_bytes=span.byte_count - before)

    def archive(self, name: str, span: Span) -> Archive:
        return Archive(
            session=self.session,
            user_id=self.session.user_id,
            month=self.month,
            name=name,
            byte_offset=span.byte_offset,
            first_sequence=self.first_sequence,
            last_sequence=self.last_sequence,
            turn_count=span.turns.count,
            byte_count=span.byte_count,
            sha256=span.sha256,
            block_sequences=[sequence for sequence, _ in span.blocks],
            block_offsets=[offset for _, offset in span.blocks],
        )


def _months(removable: RemovableTurns) -> list[MonthOfTurns]:
    session, turns = removable.session, removable.turns
    # The turns of a month need not be consecutive, because clients may send times in any order.
    by_month = turns.values(month=TruncMonth("created_at", tzinfo=UTC))
    ranges = by_month.annotate(first=Min("sequence"), last=Max("sequence")).order_by("month")
    old = {archive.month: archive for archive in session.archives.all()}
    months = []
    for month, first, last in ranges.values_list("month", "first", "last"):
        following = (month + timedelta(days=31)).replace(day=1)
        own = turns.filter(sequence__range=(first, last), created_at__gte=month, created_at__lt=following)
        months.append(MonthOfTurns(session, month.date(), own, first, last, old.get(month.date())))
    return months


def _archive(removable: Sequence[RemovableTurns], *, dry_run: bool) -> RetentionResult:
    prefetch_related_objects([each.session for each in removable], "archives")
    by_session = [(each, _months(each)) for each in removable]
    going = [each for each, months in by_session if months]
    if not going:
        return RetentionResult()
    user_pk, retained = going[0].session.user_id, RetentionResult(sessions=len(going))
    if not dry_run:
        archive_files.sweep(user_pk, [each.session for each in going])
    with ExitStack() as undo:
        written: list[tuple[MonthOfTurns, Archive]] = []
        parts = sorted((part for _, months in by_session for part in months), key=attrgetter("month"))
        for month, of_month in groupby(parts, key=attrgetter("month")):
            with archive_files.new_file() as file:
                spans = [(part, file.add(part.lines())) for part in of_month]
                if not dry_run:
                    name = archive_files.store(file, archive_files.name_of(user_pk, month))
                    undo.callback(archive_files.discard, [name])
                    written += [(part, part.archive(name, span)) for part, span in spans]
            retained = sum((part.growth(span) for part, span in spans), retained)
        if not dry_run:
            archive_files.sync_folder(user_pk)
            _replace(user_pk, [each.session for each in going], written)
            _set_first_turns(going)
        undo.pop_all()
    return retained


def _replace(user_pk: int, sessions: Sequence[Session], written: Sequence[tuple[MonthOfTurns, Archive]]) -> None:
    """Record the new files, and remove archived texts from the table. Raise SessionChanged if turns have changed."""
    _lock(sessions)
    for part, _row in written:
        if not _remove_turns(part.turns, MessageQuerySet.archive).equal(part.added):
            raise SessionChanged("turns changed")
    Archive.objects.bulk_create(
        [row for _part, row in written],
        update_conflicts=True,  # the session may already have an archive of this month
        unique_fields=["session", "month"],
        update_fields=UPDATED_FIELDS,
    )
    archive_files.remove_unused_spans(user_pk, {part.old.name for part, _row in written if part.old})


_ACTIONS: dict[str, Callable[..., RetentionResult]] = {"archive": _archive, "delete": _delete}
