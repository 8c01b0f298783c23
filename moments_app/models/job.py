"""A job is one run of a process, from the request to the outcome.

The table is the queue. Workers claim due rows, so there is no second queue that could lose or duplicate a job. A
running job is protected by a *claim*, which is the number of its attempt. Only a run that still has the claim can end
the job.
"""

import uuid
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from django.conf import settings
from django.core import signing
from django.db import connection, models, transaction
from django.db.models import Exists, F, OuterRef, Q
from django.db.models.expressions import CombinedExpression, ExpressionWrapper
from django.db.models.functions import Coalesce, Now
from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver
from django.utils import timezone
from django.utils.functional import cached_property
from psycopg.types.json import Jsonb

from sessions_app.clock import database_now
from sessions_app.database.deferred import Channel, wake, wake_workers
from sessions_app.database.sql import insert_if_missing, insert_missing
from sessions_app.models import ApiKey, DailyLimit, Event, Session, UserProfile
from sessions_app.models.daily_limit import Subject, SubjectKind, current_call
from sessions_app.models.event import named_actor
from sessions_app.models.user_profile import OfPersonQuerySet
from sessions_app.refusals import Refusal
from sessions_app.trace import MAX_TRACE_CHARS, traceparent

if TYPE_CHECKING:
    from moments_app.engines.grounding import DroppedItem
    from moments_app.models.circuit import Circuit
    from moments_app.models.stream import MemoryStream

TASK = "run_task"  # the process whose jobs call a function
JOB_FAILED = "job_failed"  # type of event
LEFT_OUT = "left_out"  # key in results: sentences dropped from a model's answers, with reasons
LEFT_OUT_MAX = 50
LEFT_OUT_CHARS = 500  # maximum characters of each sentence
CANCELLED = "cancelled_by"  # key in results: the operator who canceled the job
# Titles, keyed by the name of the process or the purpose of model calls. Each process adds its own title and that of
# its prompts.
TITLES = {"recall-query": "Search query"}
LONGEST_BACKOFF = timedelta(hours=1)


def title_of(name: str) -> str:
    return TITLES.get(name) or name.replace("_", " ").replace("-", " ").capitalize()


class DueRun(NamedTuple):
    """A due run of a process. If `due_now`, an open job that waits for a retry becomes due too."""

    process: str
    session: Session
    due_now: bool = False


class CannotChange(Refusal):
    """The job can't be canceled or retried in its current state. The message says why."""

    code = "cannot_change"


SUBJECT = Coalesce("user_id", -F("stream_id"), 0)  # primary key of the person, negative key of the shard, or 0
# For each process, an index finds the first job after the last subject, so the cost doesn't depend on the number of
# waiting jobs. If the same subject also has a more urgent job, that job is claimed instead. Otherwise, a less urgent
# lane that is always busy with the subject could delay it forever.
NEXT_SQL = f"""
WITH job AS NOT MATERIALIZED (SELECT *, COALESCE(user_id, stream_id * -1, 0) AS subject FROM moments_app_job)
SELECT COALESCE((
    SELECT job.id FROM job
    WHERE job.status = 'queued' AND job.circuit_id IS NULL AND job.process = ANY (%(urgent)s::text[])
    AND job.run_after <= statement_timestamp() AND job.subject = due.subject
    ORDER BY array_position(%(urgent)s::text[], job.process::text), job.run_after, job.id LIMIT 1
), due.id), due.subject FROM unnest(%(processes)s::text[]) AS wanted (process), LATERAL (
    SELECT job.id, job.subject, job.run_after FROM job
    WHERE job.status = 'queued' AND job.circuit_id IS NULL AND job.process = wanted.process
    AND job.run_after <= statement_timestamp() AND job.subject > %(after)s
    AND NOT EXISTS (
        SELECT FROM job other
        WHERE other.status = 'processing' AND other.subject = job.subject AND other.process <> '{TASK}'
            AND other.heartbeat_at >= statement_timestamp() - make_interval(secs => %(stale)s)
    )
    ORDER BY job.subject, job.run_after, job.id LIMIT 1
) due ORDER BY due.subject, due.run_after, due.id LIMIT 1
"""  # noqa: S608

COMPLETE_SQL = """
UPDATE moments_app_job job
SET status = 'completed', error = '', finished_at = statement_timestamp(), result = made.result
FROM unnest(%s::bigint[], %s::jsonb[]) AS made (id, result) WHERE job.id = made.id
"""


def silent_since() -> CombinedExpression:
    """Return the cutoff for heartbeats. A worker whose last heartbeat is older counts as dead."""
    # The database's clock, because workers on several hosts check each other's heartbeats.
    return Now() - timedelta(seconds=settings.JOBS.stale_seconds)


def _age_of(column: str) -> "ExpressionWrapper[Any]":
    return ExpressionWrapper(Now() - F(column), models.DurationField())


class JobQuerySet(OfPersonQuerySet["Job"]):
    def update(self, **fields: Any) -> int:
        """Update the rows. Wake idle workers if jobs may have become due, or if their due time may have changed."""
        changed = super().update(**fields)
        may_be_due = {"status", "run_after", "circuit"} & fields.keys()
        if changed and may_be_due and fields.get("status") != Job.Status.PROCESSING:
            wake_workers()
            if "run_after" in fields:  # the job is queued again, and may be a task
                wake(Channel.TASKS)
        return changed

    def update_silently(self, **fields: Any) -> int:
        return super().update(**fields)

    def on_shards(self) -> Self:
        return self.filter(user=None, stream__isnull=False)

    def of_application(self, application: int) -> Self:
        of_shard = Q(user=None, stream__application=application)
        return self.filter(Q(user__application=application) | of_shard)

    def of_subject(self, subject: int | None) -> Self:
        """Return the jobs about a person or a shard. `subject` has the format of `Job.subject`."""
        return self.alias(about=SUBJECT).filter(about=subject)

    def limited_by(self, subject: Subject) -> Self:
        """Return the jobs whose model calls count toward the limits of a key or an application."""
        return (
            self.of_application(subject.pk) if subject.kind == SubjectKind.APPLICATION else self.filter(key=subject.pk)
        )

    def postpone(self, until: datetime, reason: str) -> None:
        since = Coalesce("held_since", Now())
        self.due().update(run_after=until, held_by=Job.Held.BUDGET, held_since=since, error=reason)

    def resume_postponed(self) -> None:
        """Make postponed jobs due, because a limit may have been raised."""
        waits = (Job.Held.BUDGET, Job.Held.STEP)
        self.later().filter(held_by__in=waits).update(run_after=Now())

    def newest_first(self) -> Self:
        return self.order_by("-queued_at", "-id")

    def open(self) -> Self:
        return self.filter(status__in=Job.OPEN)

    def due(self) -> Self:
        """Return queued jobs that can start now, because they are not postponed and no circuit holds them."""
        return self.filter(status=Job.Status.QUEUED, circuit=None, run_after__lte=Now())

    def claimable(self) -> Self:
        """Return due jobs that `claim_next` can claim. Exclude tasks, and people who have a running job."""
        running = Job.objects.working().exclude(process=TASK).alias(about=SUBJECT).filter(about=OuterRef("about"))
        return self.due().exclude(process=TASK).alias(about=SUBJECT).exclude(Exists(running))

    def held(self) -> Self:
        return self.filter(status=Job.Status.QUEUED, circuit__isnull=False)

    def later(self) -> Self:
        """Return queued jobs that are not due yet, because of a backoff or a limit."""
        return self.filter(status=Job.Status.QUEUED, circuit=None, run_after__gt=Now())

    def stalled(self) -> Self:
        """Return jobs with a recorded failure that have failed, are queued again, or are running again."""
        return self.filter(failure__isnull=False, status__in=[*Job.OPEN, Job.Status.FAILED])

    def cancelled(self) -> Self:
        return self.filter(status=Job.Status.SKIPPED, result__has_key=CANCELLED)

    def working(self) -> Self:
        """Return running jobs whose worker is alive."""
        return self.filter(status=Job.Status.PROCESSING, heartbeat_at__gte=silent_since())

    def stale(self, gone: Collection[str] = ()) -> Self:
        """Return running jobs whose last heartbeat is too old, or whose worker is among the `gone`."""
        is_dead = Q(heartbeat_at__lt=silent_since()) | Q(worker__in=gone)
        return self.filter(is_dead, status=Job.Status.PROCESSING)

    def workers(self) -> list[str]:
        running = self.filter(status=Job.Status.PROCESSING).exclude(worker="")
        return list(running.order_by("worker").values_list("worker", flat=True).distinct())

    def waiting_for_a_worker(self) -> Self:
        """Return due tasks that wait for a running job, because no worker is reserved for tasks.

        The job was already running when the task became due.
        """
        if settings.JOBS.has_worker_per_lane:
            return self.none()
        running = Job.objects.working().filter(started_at__lte=OuterRef("run_after"))
        return self.due().filter(Exists(running), process=TASK)

    def oldest_wait(self) -> float:
        """Return the longest wait of a due or stuck job in seconds; 0 if no job waits.

        Exclude tasks that wait for the end of a running job.
        """
        late = self.due().exclude(pk__in=self.waiting_for_a_worker().values("pk"))
        first_due = late.order_by("run_after").values_list(_age_of("run_after"))[:1]
        first_stale = self.stale().order_by("heartbeat_at").values_list(_age_of("heartbeat_at"))[:1]
        return max((age.total_seconds() for (age,) in first_due.union(first_stale)), default=0.0)

    def next_due(self, *, within: float) -> float:
        """Return the seconds until the next waiting job is due, at most `within`."""
        next_wait = ExpressionWrapper(F("run_after") - Now(), models.DurationField())
        wait: timedelta
        for (wait,) in self.later().order_by("run_after").values_list(next_wait)[:1]:
            return min(max(wait.total_seconds(), 0.0), within)
        return within

    def request(
        self,
        process: str,
        session: Session | None = None,
        *,
        requested_by: str,
        stream: "MemoryStream | None" = None,
        user_id: int | None = None,
        force: bool = False,
        params: dict[str, Any] | None = None,
        due_now: bool = False,
        stays_open: bool = False,
    ) -> "Job":
        """Queue a process for a session, a stream or a person. If an open job already exists, return it.

        Call this in the transaction that makes the run due, so that both are committed or neither.

        Args:
            requested_by: the key, operator or job that requests it.
            user_id: primary key of the person whose whole memory is processed.
            force: run regardless of the thresholds.
            due_now: whether to make an open job due now if it waits for a retry.
            stays_open: if a job is already open, make its run wait in `is_claimed` until this transaction ends. Then
                it also processes the rows that this transaction adds. The run must not hold other locks that this
                transaction needs.
        """
        job = Job(
            process=process,
            session=session,
            stream=stream,
            user_id=session.user_id if session else stream.user_id if stream else user_id,
            force=force,
            params=params or {},
            requested_by=requested_by,
        )
        job.record_origin()
        return job if self._is_new(job) else self._join(job, due_now=due_now, stays_open=stays_open)

    def _is_new(self, job: "Job") -> bool:
        """Insert a job and wake idle workers, unless a job for the same work is open. Return whether it was new."""
        if is_new := insert_if_missing(job):
            wake_workers()
        return is_new

    def request_task(
        self,
        name: str,
        function: str,
        *args: Any,
        user_id: int | None = None,
        requested_by: str,
        kwargs: Mapping[str, Any] | None = None,
    ) -> "Job":
        """Queue the call of a function, unless a call with the same name is open (queued or running).

        Args:
            function: the dotted path of the function.
            args, kwargs: the arguments, which must be valid JSON.
            user_id: primary key of the person whose data the function handles.
            requested_by: the requester, such as `schedule`.
        """
        # Signed, because web processes can insert jobs, but must not choose the functions that workers call.
        params = {"call": signing.dumps([function, list(args), dict(kwargs or {})], salt=TASK)}
        job = Job(process=TASK, task=name, params=params, user_id=user_id, requested_by=requested_by)
        while not insert_if_missing(job):
            if found := self.open().filter(process=TASK, task=name, user_id=user_id).first():
                return found
        wake(Channel.TASKS)
        return job

    def request_many(self, runs: "Sequence[DueRun]", *, requested_by: str) -> "list[Job]":
        """Queue distinct runs, as `request` does for one. Return the jobs, in the order of the runs.

        This takes one query if all jobs are already open, and two otherwise.
        """
        jobs = [
            Job(process=run.process, session=run.session, user_id=run.session.user_id, requested_by=requested_by)
            for run in runs
        ]
        found = self._open_jobs_like(jobs)
        new = [job for job in jobs if (job.process, job.session_id) not in found]
        for job in new:
            job.record_origin()
        if insert_missing(new, unique_fields=["process", "session_id"]):
            wake_workers()
        return [
            job if job.pk else self._join(job, found.get((job.process, job.session_id)), due_now=run.due_now)
            for run, job in zip(runs, jobs, strict=True)
        ]

    def _open_jobs_like(self, jobs: "Sequence[Job]") -> "dict[tuple[str, int | None], Job]":
        """Return the open jobs for the same work as `jobs`, keyed by process and session."""
        if not jobs:
            return {}
        processes, sessions, users = ({*map(attrgetter(name), jobs)} for name in ("process", "session_id", "user_id"))
        same = self.open().filter(process__in=processes, session__in=sessions, stream=None, user__in=users)
        return {(job.process, job.session_id): job for job in same}

    def _join(self, job: "Job", found: "Job | None" = None, *, due_now: bool, stays_open: bool = False) -> "Job":
        """Store `job`, or update the open job for the same work. Return the result.

        Args:
            found: the open job, if it is known.
        """
        while found is None:
            same = self.open().filter(process=job.process, session=job.session, stream=job.stream, user_id=job.user_id)
            found = same._locked_open() if stays_open else same.first()
            if found is None and self._is_new(job):  # the open job ended in the meantime
                return job
        if job.force:
            found.force_queued(job.params)
        if due_now:
            found.make_due()
        return found

    def _locked_open(self) -> "Job | None":
        """Return the only row, locked so that no run passes `is_claimed` until this transaction ends.

        The key share lock blocks neither heartbeats nor other requests, so requests don't wait for each other.
        """
        sql, parameters = self.query.sql_with_params()
        return next(iter(self.raw(f"{sql} FOR KEY SHARE", parameters)), None)

    def request_fresh_run(
        self, process: str, session: Session | None = None, *, requested_by: str, user_id: int | None = None
    ) -> "Job":
        """Queue a forced run that starts after this transaction. Return the locked job, which the caller may change."""
        while (job := self.requeue(process, session, user_id=user_id)) is None:
            self.request(process, session, requested_by=requested_by, user_id=user_id, force=True)
        job.force = True
        job.save(update_fields=["force"])
        return job

    def requeue(self, process: str, session: Session | None = None, *, user_id: int | None = None) -> "Job | None":
        """Make an open job due, lock it, and return it, so that it starts after this transaction.

        If no job is open, return None. If the job is running, its current run loses the claim and writes nothing.
        """
        person = session.user_id if session else user_id
        about = self.open().filter(process=process, session=session, stream=None, user_id=person)
        job = about.select_for_update().first()
        if job:
            job.status, job.run_after = Job.Status.QUEUED, database_now()
            job.save(update_fields=["status", "run_after"])
        return job

    def claim(self, job_id: uuid.UUID) -> "Job | None":
        """Claim a due job for this worker. Return None if it is not due, claimed, ended or unknown."""
        return self._claimed(job_id=job_id)

    def claim_next(
        self, processes: Collection[str], *, after: int, urgent: Collection[str] = (), worker: str = ""
    ) -> "Job | None":
        """Claim the next due job of these processes. Return None if there is none.

        People take turns, and run one job at a time. Skip people who have a running job with a live worker. Claim the
        next person's most urgent job.

        Args:
            after: the subject of the previous job, as in `Job.subject`.
            urgent: names of more urgent processes, the most urgent first.
        """
        for start in dict.fromkeys((after, Job.FIRST_SUBJECT)):
            while (found := self._next(processes, urgent, start)) is not None:
                pk, start = found
                if job := self._claim_exclusively(pk, start, worker):
                    return job
        return None

    def _next(self, processes: Collection[str], urgent: Collection[str], after: int) -> "tuple[int, int] | None":
        values: dict[str, Any] = {
            "processes": list(processes),
            "urgent": list(urgent),
            "after": after,
            "stale": settings.JOBS.stale_seconds,
        }
        with connection.cursor() as cursor:
            cursor.execute(NEXT_SQL, values)
            found: tuple[int, int] | None = cursor.fetchone()
        return found

    @transaction.atomic
    def claim_task(self, worker: str = "") -> "Job | None":
        """Claim the task that has been due longest. Tasks run in parallel with each other and with all other jobs."""
        due = self.due().filter(process=TASK).order_by("run_after", "id").select_for_update(skip_locked=True)
        first = due.values_list("pk", flat=True).first()
        return self._claimed(worker, pk=first) if first else None

    @transaction.atomic
    def _claim_exclusively(self, pk: int, subject: int, worker: str) -> "Job | None":
        """Claim a job, unless another job of the same person is running or being claimed."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(hashtextextended('job', %s))", [subject])
            [is_alone] = cursor.fetchone() or [False]
        if not is_alone:
            return None
        is_busy = self.working().exclude(process=TASK).of_subject(subject).exists()
        return None if is_busy else self._claimed(worker, pk=pk)

    def claim_many(self, jobs: "Sequence[Job]") -> bool:
        """Claim due jobs in the same transaction that completes them. Return whether all were claimed."""
        return self.due().filter(pk__in=[job.pk for job in jobs])._mark_claimed() == len(jobs)

    def complete_many(self, results: "Mapping[Job, dict[str, Any]]") -> None:
        made = [Jsonb(result | job._of_left_out(result)) for job, result in results.items()]
        with connection.cursor() as cursor:
            cursor.execute(COMPLETE_SQL, [[job.pk for job in results], made])
        for job in sorted(results, key=lambda job: job.failure_id or 0):  # in a fixed order, to avoid deadlocks
            job._unmute_ended()
        wake_workers()

    def _mark_claimed(self, worker: str = "") -> int:
        return self.update(
            status=Job.Status.PROCESSING,
            attempts=F("attempts") + 1,
            started_at=Now(),
            heartbeat_at=Now(),
            progress_done=0,
            worker=worker,
        )

    def _claimed(self, worker: str = "", **which: Any) -> "Job | None":
        """Claim a job if it is due. If several workers try this, only one succeeds."""
        taken = self.due().filter(**which)._mark_claimed(worker)
        # The job may have been deleted in the meantime, together with its person.
        return Job.objects.select_related("session__user", "stream").filter(**which).first() if taken else None


class Job(models.Model):
    class Status(models.TextChoices):
        QUEUED = "queued"
        PROCESSING = "processing"
        COMPLETED = "completed"
        FAILED = "failed"
        SKIPPED = "skipped"

    class Held(models.TextChoices):
        BACKOFF = "backoff", "a retry after a failure"
        CIRCUIT = "circuit", "an unavailable provider"
        BUDGET = "budget", "the next day, because a daily limit is reached"
        STEP = "step", "another job"

    OPEN = (Status.QUEUED, Status.PROCESSING)
    FIRST_SUBJECT = -(2**63)  # lower than any subject

    job_id = models.UUIDField(unique=True, default=uuid.uuid4, editable=False)
    process = models.CharField(max_length=32)
    user = models.ForeignKey(UserProfile, null=True, blank=True, on_delete=models.CASCADE, related_name="jobs")
    stream = models.ForeignKey(
        "moments_app.MemoryStream", null=True, blank=True, on_delete=models.CASCADE, related_name="jobs"
    )
    session = models.ForeignKey(Session, null=True, blank=True, on_delete=models.CASCADE, related_name="jobs")
    task = models.CharField(
        max_length=100,
        blank=True,
        default="",
        db_default="",  # for jobs that an earlier release queues during an update
        help_text="Name of the schedule or function that the job runs. Blank if the job runs neither.",
    )
    status = models.CharField(max_length=16, choices=Status, default=Status.QUEUED)
    force = models.BooleanField(default=False)
    params = models.JSONField(default=dict, blank=True)
    attempts = models.PositiveIntegerField(default=0)
    queued_at = models.DateTimeField(default=timezone.now)
    run_after = models.DateTimeField(
        default=timezone.now,
        help_text="Earliest time at which the job can start. A backoff or an open circuit postpones the start.",
    )
    held_by = models.CharField(
        max_length=16,
        choices=Held,
        blank=True,
        default="",
        db_default="",  # for jobs that an earlier release queues during an update
        help_text="What the job is waiting for, such as a retry or an unavailable engine. Blank if the job is not on "
        "hold.",
    )
    held_since = models.DateTimeField(
        null=True, blank=True, help_text="When the job was put on hold. Blank if the job is not on hold."
    )
    circuit = models.ForeignKey(
        "moments_app.Circuit",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="jobs",
        db_index=False,
        help_text="The circuit that must close before the job can run. Blank if the job is not waiting for a circuit.",
    )
    failure = models.ForeignKey(
        "moments_app.FailureGroup",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="jobs",
        db_index=False,
        help_text="The failure that ended the latest attempt.",
    )
    started_at = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    worker = models.CharField(
        max_length=255,
        blank=True,
        default="",
        db_default="",  # for jobs that an earlier release queues during an update
        help_text="The worker process that made the latest attempt. Blank if unknown.",
    )
    finished_at = models.DateTimeField(null=True, blank=True)
    progress_done = models.PositiveIntegerField(default=0)
    progress_total = models.PositiveIntegerField(default=0)
    result = models.JSONField(
        default=dict, blank=True, help_text="Results of the job, or the reason why the job was skipped."
    )
    error = models.TextField(blank=True)
    requested_by = models.CharField(max_length=255)
    key = models.ForeignKey(
        ApiKey,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        db_index=False,
        related_name="+",
        help_text="The API key that queued the job. Blank if no key queued the job.",
    )
    trace = models.CharField(
        max_length=MAX_TRACE_CHARS,
        blank=True,
        default="",
        db_default="",  # for jobs that an earlier release queues during an update
        help_text="Trace of the request or job that queued this job, as a W3C `traceparent` or a trace id.",
    )

    objects = JobQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["process", "user", "session", "stream", "task"],
                condition=Q(status__in=["queued", "processing"]),
                nulls_distinct=False,
                name="job_one_open",
            )
        ]
        indexes = [
            models.Index(fields=["run_after"], condition=Q(status="queued"), name="job_queued"),
            models.Index(
                F("process"), SUBJECT, F("run_after"), condition=Q(status="queued", circuit=None), name="job_in_turn"
            ),
            models.Index(
                F("circuit"), SUBJECT, F("id"), condition=Q(status="queued", circuit__isnull=False), name="job_held"
            ),
            models.Index(fields=["failure", "status", "id"], condition=Q(failure__isnull=False), name="job_of_failure"),
            models.Index(fields=["heartbeat_at"], condition=Q(status="processing"), name="job_processing"),
            models.Index(fields=["user", "-queued_at", "-id"], name="job_user_newest"),
            models.Index(fields=["status", "-id"], name="job_status_newest"),
            models.Index(fields=["process", "-id"], name="job_process_newest"),
            models.Index(
                fields=["status", "process"],
                include=["held_by", "circuit", "run_after", "held_since", "queued_at"],
                condition=Q(status__in=["queued", "processing", "failed"]),
                name="job_unfinished",
            ),
            models.Index(fields=["finished_at"], condition=Q(status__in=["completed", "skipped"]), name="job_ended"),
        ]

    def __str__(self) -> str:
        return f"{self.title} {self.job_id}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        super().save(*args, **kwargs)
        wake_workers()

    @property
    def title(self) -> str:
        return title_of(self.process)

    @cached_property
    def left_out(self) -> "list[DroppedItem]":
        """The sentences that this run has dropped from answers."""
        return []

    @property
    def subject(self) -> int:
        """The primary key of the job's person, or the negative key of its shard; 0 if it has neither."""
        return self.user_id or -(self.stream_id or 0)

    @property
    def limit_subjects(self) -> list[Subject]:
        """The key and application whose limits include the job's model calls."""
        pks = {SubjectKind.KEY: self.key_id, SubjectKind.APPLICATION: self.application_pk}
        return [Subject(kind, pk) for kind, pk in pks.items() if pk is not None]

    @cached_property
    def application_pk(self) -> int | None:
        """The primary key of the application; None if the job has no application, or the person was erased."""
        if about := self.session or self.stream:
            return about.application_pk
        if self.user_id is None:
            return None
        return UserProfile.objects.filter(pk=self.user_id).values_list("application_id", flat=True).first()

    @property
    def is_due(self) -> bool:
        """True if the job can start now: it is queued, not postponed, and no circuit holds it."""
        return self.status == Job.Status.QUEUED and self.circuit_id is None and self.run_after <= timezone.now()

    @property
    def is_held(self) -> bool:
        return self.status == Job.Status.QUEUED and self.circuit_id is not None

    @property
    def backoff(self) -> timedelta:
        """The wait after a failed attempt. It doubles with each attempt, up to `LONGEST_BACKOFF`."""
        wait: timedelta = timedelta(seconds=settings.JOBS.backoff_seconds) * 2 ** (self.attempts - 1)
        return min(wait, LONGEST_BACKOFF)

    @property
    def is_stale(self) -> bool:
        """True if the job is running, but its worker counts as dead because the last heartbeat is too old."""
        limit = timezone.now() - timedelta(seconds=settings.JOBS.stale_seconds)
        is_silent = self.heartbeat_at is not None and self.heartbeat_at < limit
        return self.status == Job.Status.PROCESSING and is_silent

    @property
    def is_cancelled(self) -> bool:
        return self.status == Job.Status.SKIPPED and CANCELLED in self.result

    @property
    def can_restart(self) -> bool:
        return self.status == Job.Status.FAILED or self.is_cancelled

    @property
    def can_cancel(self) -> bool:
        return self.status in Job.OPEN

    def record_origin(self) -> None:
        self.trace = traceparent()
        self.key_id = current_call().key_pk if self.user_id else None

    def force_queued(self, params: dict[str, Any]) -> None:
        """Force the job if it is queued. A running job is not changed."""
        waiting = Job.objects.filter(pk=self.pk, status=Job.Status.QUEUED)
        if waiting.update(force=True, params=self.params | params):
            self.force, self.params = True, self.params | params

    def make_due(self) -> None:
        """Make the job due if it waits for a retry."""
        waiting = Job.objects.filter(pk=self.pk, status=Job.Status.QUEUED, attempts__gt=0)
        waiting.update(run_after=Now())

    def is_claimed(self, *, waits: bool = True) -> bool:
        """Lock the row, and return whether this run still has the claim. Another run may have taken the job over.

        Args:
            waits: whether to wait for transactions that requested the job with `stays_open`.
        """
        return self._claimed().select_for_update(no_key=not waits).exists()

    def record_heartbeat(self, done: int, total: int) -> None:
        self._claimed().update(heartbeat_at=Now(), progress_done=done, progress_total=total)

    def complete(self, result: dict[str, Any]) -> None:
        self._end(Job.Status.COMPLETED, result=result | self._of_left_out(result), error="")

    def _of_left_out(self, result: dict[str, Any]) -> dict[str, Any]:
        if not self.left_out:
            return {}
        dropped = Counter(result.get("dropped", {})) + Counter(one.reason for one in self.left_out)
        shown = [{"text": one.text[:LEFT_OUT_CHARS], "reason": one.reason} for one in self.left_out[:LEFT_OUT_MAX]]
        return {"dropped": dict(dropped), LEFT_OUT: shown}

    def skip(self, reason: str) -> None:
        self._end(Job.Status.SKIPPED, result={"reason": reason}, error="")

    def fail(self, error: str) -> None:
        with transaction.atomic():
            if self._end(Job.Status.FAILED, error=error):
                self._log_failure()

    def _log_failure(self) -> None:
        if self.user_id is None or UserProfile.objects.try_protect(self.user_id):  # the person is not being erased
            payload = {"job_id": str(self.job_id), "process": self.process}
            Event.objects.create(
                type=JOB_FAILED,
                actor=f"job:{self.job_id}",
                application_id=self._shard_application(),
                user_pk=self.user_id,
                session_pk=self.session_id,
                payload=payload,
            )

    def _shard_application(self) -> int | None:
        return self.stream.application_id if self.user_id is None and self.stream else None

    def retry_later(self, error: str, *, wait: timedelta | None = None) -> None:
        """Queue the job for another attempt after a wait. If it has used up `JOBS__MAX_ATTEMPTS`, fail it.

        Args:
            wait: the minimum wait. Default: the backoff.
        """
        if self.attempts >= settings.JOBS.max_attempts:
            return self.fail(error)
        until = database_now() + max(self.backoff, wait or self.backoff)
        self._hold(Job.Held.BACKOFF, error=error, run_after=until)

    def postpone(self, until: datetime, reason: str, held_by: "Job.Held", *, circuit: "Circuit | None" = None) -> None:
        """Requeue the job without counting the attempt.

        Args:
            reason: the reason for the wait, for operators.
            held_by: the kind of wait.
        """
        self._hold(held_by, error=reason, run_after=until, attempts=F("attempts") - 1, circuit=circuit)

    def release(self) -> None:
        """Requeue the job after its worker died. The attempt counts.

        After the first attempt, the job is due immediately. After later ones, it waits until its last heartbeat is
        `JOBS__STALE_SECONDS` old. Otherwise, a job that kills its workers, or an operator who kills several workers,
        would quickly use up the attempts.
        """
        due = now = database_now()
        if self.attempts > 1 and self.heartbeat_at:
            due = max(due, min(self.heartbeat_at, now) + timedelta(seconds=settings.JOBS.stale_seconds))
        self._update(status=Job.Status.QUEUED, error="The worker crashed or stopped responding.", run_after=due)

    def cancel(self, *, actor: str) -> None:
        """Cancel a queued or running job. Its status becomes skipped. A running attempt then writes nothing.

        Raises:
            CannotChange: the job has ended.
        """
        result = {"reason": f"Cancelled by {named_actor(actor)}.", CANCELLED: actor}
        state = {"status": Job.Status.SKIPPED, "result": result, "finished_at": Now()}
        if not Job.objects.open().filter(pk=self.pk).update(**state):
            self.refresh_from_db(fields=["status"])
            raise CannotChange(f"Only queued and running jobs can be cancelled. This job is {self.status}.")
        self._unmute_ended()

    @transaction.atomic
    def restart(self) -> None:
        """Queue a failed or canceled job again, due now. A failed job gets a new set of attempts.

        Raises:
            CannotChange: the job is in another state, or another job for the same work is open.
        """
        about = {"user": self.user, "session": self.session, "stream": self.stream, "task": self.task}
        same = Job.objects.open().filter(process=self.process, **about)
        if other := same.exclude(pk=self.pk).first():
            raise CannotChange(f"Job {other.job_id} already does the same work, so this one is not needed.")
        state = {"status": Job.Status.QUEUED, "run_after": Now(), "finished_at": None}
        state |= {"held_since": None, "circuit": None}
        this = Job.objects.filter(pk=self.pk)
        # Don't reset the attempts of a canceled job. Its run may still be working, and the attempt number is its claim.
        cancelled = this.cancelled().update(result={}, **state)
        if not cancelled and not this.filter(status=Job.Status.FAILED).update(attempts=0, **state):
            raise CannotChange(f"Only failed and cancelled jobs can be retried. This job is {self.status}.")

    def _hold(self, held_by: "Job.Held", **fields: Any) -> None:
        since = Coalesce("held_since", Now())
        self._update(status=Job.Status.QUEUED, held_by=held_by, held_since=since, **fields)

    def _end(self, status: "Job.Status", **fields: Any) -> bool:
        rows = self._claimed()
        # Don't wake workers when a task ends, because no job waits for it.
        end = rows.update_silently if self.process == TASK else rows.update
        has_ended = end(status=status, finished_at=Now(), **fields) == 1
        if has_ended and status != Job.Status.FAILED:
            self._unmute_ended()
        return has_ended

    def _unmute_ended(self) -> None:
        if self.failure:
            self.failure.unmute_ended(self.user_id)

    def _update(self, **fields: Any) -> bool:
        return self._claimed().update(**fields) == 1

    def _claimed(self) -> JobQuerySet:
        return Job.objects.filter(pk=self.pk, status=Job.Status.PROCESSING, attempts=self.attempts)


@receiver([post_save, post_delete], sender=DailyLimit)
def resume_postponed_jobs(**_: Any) -> None:
    """When a daily limit changes, resume the jobs that limits have postponed. The jobs check the limits again."""
    Job.objects.resume_postponed()
