"""Rolling summaries. Each session has a chain of versions, each based on the previous one.

A version is created as `processing` when it is requested. A database constraint allows only one such version per
session.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple, Self

from django.contrib.postgres.fields import ArrayField
from django.db import connection, models
from django.db.models import Exists, ExpressionWrapper, F, Func, OuterRef, Q
from django.utils import timezone

from moments_app.models.job import Job
from moments_app.models.prompt import PromptVersion
from sessions_app.models import Message, Session, UserProfile

PROCESS = "roll_summary"
WINDOW = 14  # maximum turns in the window of a summary
STUCK_AFTER = timedelta(minutes=5)  # age after which an unfinished summary without a job is restarted

# This is a single statement, because each append that ends a round executes it. It reads turns only if `start` is
# `_START_SQL`.
_BEGIN_SQL = """
INSERT INTO moments_app_summary
    (session_id, user_id, status, start_sequence, end_sequence, base_id, text, facts, source_message_ids, engine, error,
     created_at)
SELECT ended.session_id, %(user)s, 'processing', ended.start, ended.last, (
        SELECT id FROM moments_app_summary
        WHERE session_id = ended.session_id AND user_id = %(user)s AND status = 'completed'
        ORDER BY end_sequence DESC, id DESC LIMIT 1
    ), '', '[]', '{{}}', '', '', now()
FROM (
    SELECT session_id, last, {start} AS start
    FROM unnest(%(sessions)s::bigint[], %(firsts)s::bigint[], %(lasts)s::bigint[], %(seeking)s::boolean[])
        AS ended (session_id, first, last, seeks_start) OFFSET 0
) ended
ON CONFLICT DO NOTHING RETURNING session_id
"""
# A window with `seeks_start` starts with its first user turn. Other windows, and windows without a user turn, start
# with `first`.
_START_SQL = """COALESCE(CASE WHEN seeks_start THEN (
    SELECT min(turn.sequence) FROM sessions_app_message turn
    WHERE turn.user_id = %(user)s AND turn.session_id = ended.session_id AND turn.kind = 'turn' AND turn.role = 'user'
      AND turn.sequence BETWEEN ended.first AND ended.last
) END, first)"""


class SummaryQuerySet(models.QuerySet["Summary"]):
    def for_session(self, session: Session) -> Self:
        return self.filter(session=session, user_id=session.user_id)

    def completed(self) -> Self:
        return self.filter(status=Summary.Status.COMPLETED)

    def processing(self) -> Self:
        return self.filter(status=Summary.Status.PROCESSING)

    def newest_first(self) -> Self:
        """Order summaries as in the chain, by the end of the window, latest first."""
        return self.order_by("-end_sequence", "-id")

    def with_source_sequences(self) -> Self:
        """Annotate summaries with `source_sequences`, the ordered sequence numbers of the remaining source turns."""
        sequences = Func("user", "session", "source_message_ids", function="sequences_of_turns")
        return self.annotate(source_sequences=ExpressionWrapper(sequences, ArrayField(models.BigIntegerField())))

    def latest_completed(self, session: Session) -> "Summary | None":
        return self.for_session(session).completed().newest_first().first()

    def stuck(self) -> Self:
        """Return unfinished versions without a job that are older than `STUCK_AFTER`."""
        limit = timezone.now() - STUCK_AFTER
        working = Job.objects.open().filter(process=PROCESS, session=OuterRef("session"))
        return self.processing().filter(~Exists(working), created_at__lt=limit)

    def begin(self, session: Session, end: int) -> bool:
        """Add the next version, unless an unfinished one exists. Return whether it was added.

        Args:
            end: the sequence number of the window's last turn. The turn ends a round.
        """
        return bool(self.begin_many({session: end}, {}))

    def begin_many(self, ends: Mapping[Session, int], appended: Mapping[Session, Sequence[Message]]) -> list[Session]:
        """Add the next versions, like `begin`, with one statement per person. Return the sessions with a new version.

        Turns in `appended` are not read from the database.
        """
        windows: dict[int, list[_Window]] = defaultdict(list)
        for session, end in ends.items():
            windows[session.user_id].append(_window(session, end, appended.get(session, ())))
        begun: set[int] = set()
        with connection.cursor() as cursor:
            for user, own in windows.items():
                columns = map(list, zip(*own, strict=True))
                parameters = dict(zip(("sessions", "firsts", "lasts", "seeking"), columns, strict=True))
                start = _START_SQL if any(window.seeks_start for window in own) else "first"
                cursor.execute(_BEGIN_SQL.format(start=start), parameters | {"user": user})
                begun.update(pk for (pk,) in cursor)
        return [session for session in ends if session.pk in begun]


class _Window(NamedTuple):
    """The turns of a new version. If `seeks_start`, the version starts with the first user turn from `first` on."""

    session: int
    first: int
    last: int
    seeks_start: bool


def _window(session: Session, last: int, appended: Sequence[Message]) -> _Window:
    """Return the window that ends with a round. It starts with a user turn if possible, to not split a pair."""
    first = max(0, last - WINDOW + 1)
    seeks_start = first > session.kept_from_sequence  # otherwise, the role of an archived first turn is unknown
    if seeks_start and appended and appended[0].sequence <= first:
        said = (turn.sequence for turn in appended if turn.role == Message.Role.USER)
        first = next((sequence for sequence in said if first <= sequence <= last), first)
        seeks_start = False
    return _Window(session.pk, first, last, seeks_start)


class Summary(models.Model):
    class Status(models.TextChoices):
        PROCESSING = "processing"
        COMPLETED = "completed"
        FAILED = "failed"

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="summaries", db_index=False)
    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="summaries")
    status = models.CharField(max_length=16, choices=Status, default=Status.PROCESSING)
    start_sequence = models.BigIntegerField()
    end_sequence = models.BigIntegerField()
    base = models.ForeignKey("self", null=True, blank=True, on_delete=models.RESTRICT, related_name="successors")
    text = models.TextField(blank=True)
    facts = models.JSONField(
        default=list,
        blank=True,
        help_text="Facts in the summary. Each fact has a text (`fact`) and the sequence numbers of the "
        "source turns (`message_indexes`).",
    )
    source_message_ids = ArrayField(
        models.BigIntegerField(), default=list, blank=True, help_text="Primary keys of the source turns."
    )
    engine = models.CharField(max_length=255, blank=True)
    prompt_version = models.ForeignKey(PromptVersion, null=True, blank=True, on_delete=models.SET_NULL)
    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="summaries")
    generation_time_ms = models.PositiveIntegerField(null=True, blank=True)
    error = models.TextField(blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    completed_at = models.DateTimeField(null=True, blank=True)

    objects = SummaryQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "summaries"
        constraints = [
            models.UniqueConstraint(
                fields=["session"], condition=Q(status="processing"), name="summary_one_processing_per_session"
            ),
            models.CheckConstraint(condition=Q(start_sequence__lte=F("end_sequence")), name="summary_range_in_order"),
        ]
        indexes = [
            models.Index(fields=["session", "user", "status", "-end_sequence", "-id"], name="summary_session_latest"),
            models.Index(fields=["created_at"], condition=Q(status="processing"), name="summary_processing"),
            models.Index(fields=["-id"], condition=Q(status="failed"), name="summary_failed"),
            models.Index(
                fields=["user", "-created_at", "-id"], condition=Q(status="completed"), name="summary_user_newest"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.start_sequence}–{self.end_sequence} of {self.session}"

    def fail(self, error: str) -> None:
        """Mark this version as failed, unless it has ended."""
        waiting = Summary.objects.processing().filter(pk=self.pk)
        waiting.update(status=Summary.Status.FAILED, error=error, completed_at=timezone.now())
