"""Circuit breakers. While an engine fails, its jobs are held, and one job at a time calls the engine as a probe.

`FailureCause` describes the kinds of failures and their consequences. A failure caused by a text or an answer affects
only its job. A rejected credential opens the circuit at once. Overload and network failures open it if calls about two
people fail and no call succeeds in between. If both calls are about one person, the circuit opens only for this person,
because their text may be the cause. A successful call closes the circuit, and all held jobs become due.

If a person's calls fail while other people's calls succeed, the person is *isolated* until one of their calls succeeds.
Failures of isolated people don't open a circuit, so they don't delay other people's jobs.

If an endpoint is unavailable, it is unavailable for all of its models and kinds of work. So the circuits of an endpoint
take turns sending probes. While one of them is open, a single failed call opens another one. A successful call makes
the probes of all circuits due.

A held job costs nothing. No worker claims it until the circuit closes or sends it as the next probe.

A circuit also closes if nothing needs its engine any more, for example because the settings name another model.
"""

from datetime import datetime, timedelta
from typing import Any, Self

import structlog
from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models, transaction
from django.db.models import Count, F, OuterRef, Q, Subquery
from django.db.models.functions import Coalesce, Greatest, Now
from django.utils import timezone

from moments_app.engines import EngineFactory
from moments_app.engines.interface import FAILURE_CAUSES, CallRecord, FailureCause
from moments_app.models.job import SUBJECT, Job, JobQuerySet
from sessions_app.clock import database_now
from sessions_app.database.sql import insert_if_missing
from sessions_app.models import Event
from sessions_app.refusals import Refusal

OUTAGE = frozenset(
    kind
    for kind, cause in FAILURE_CAUSES.items()
    if cause in (FailureCause.CREDENTIAL, FailureCause.LOAD, FailureCause.NETWORK)
)
UNREACHABLE = frozenset({"unavailable", "server_error"})  # the endpoint is down for every kind of work
PROBE_SECONDS = 30.0  # seconds between probes of a failing engine; 0 disables circuits
FIRST_PROBE_SECONDS = 3.0  # seconds until the first probe; short, because two calls may fail by chance
MAX_PEOPLE = 100  # maximum people in each list of a circuit
GIVE_UP_AFTER = timedelta(days=1)  # maximum time that a circuit holds jobs, if it is open for only one person
UNUSED_AFTER = timedelta(minutes=10)  # a circuit without held jobs closes if its probe is overdue this long

logger = structlog.get_logger(__name__)


def interval() -> timedelta:
    return timedelta(seconds=PROBE_SECONDS)


class NotOpen(Refusal):
    """The circuit is closed."""

    def __init__(self) -> None:
        super().__init__("This circuit is already closed.")


class CircuitQuerySet(models.QuerySet["Circuit"]):
    def open(self) -> Self:
        return self.filter(state=Circuit.State.OPEN)

    def with_held(self) -> Self:
        """Annotate circuits with `held`, the number of jobs they hold."""
        jobs = Job.objects.held().filter(circuit=OuterRef("pk")).order_by().values("circuit")
        number = jobs.annotate(number=Count("pk")).values("number")
        return self.annotate(held=Coalesce(Subquery(number), 0))

    def at_endpoint_of(self, work: str) -> Self:
        return self.filter(work__in=_works_at_endpoint_of(work))

    def unreachable(self) -> Self:
        """Return the circuits that hold all jobs because their endpoint is down."""
        return self.open().filter(holds_all=True, reason__in=UNREACHABLE)

    def locked(self, engine: str, work: str) -> "Circuit":
        """Lock the endpoint's circuits in a fixed order. Return the circuit of this engine and kind of work."""
        rows = self.at_endpoint_of(work).order_by("pk").select_for_update(no_key=True)
        return next(row for row in rows if (row.engine, row.work) == (engine, work))

    def open_for(self, factory: EngineFactory) -> "Circuit | None":
        return self.open().filter(engine=factory.name, work=factory.work).first() if interval() else None

    def is_healthy(self, factory: EngineFactory) -> bool:
        """Return whether the engine's last call succeeded, as far as is known."""
        return not self.filter(engine=factory.name, work=factory.work).exclude(state="closed", failures=0).exists()

    def refuse_query(self, engine: str) -> bool:
        """Return whether a query must be answered without the engine. Regularly admit one query as a probe."""
        if not interval():
            return False
        found = list(self.open().filter(engine=engine))
        if any(circuit.also_blocks_queries for circuit in found if not circuit.is_of_queries):
            return True
        return any(not circuit.reserve_probe() for circuit in found if circuit.is_of_queries)

    def record(self, call: CallRecord, work: str, *, job: Job | None = None) -> None:
        """Open, close or update the circuit of an engine after a call. `job` is None for a call in a request."""
        if call.is_aborted or call.is_repeated_failure or not interval():
            return
        this = self.filter(engine=call.engine, work=work)
        if call.error_kind in OUTAGE:
            insert_if_missing(Circuit(engine=call.engine, work=work))
            with transaction.atomic():
                self.locked(call.engine, work).record_failure(call, job)
        elif this.filter(~Q(state=Circuit.State.CLOSED, failures=0) | _isolates(job)).exists():
            with transaction.atomic():
                self.locked(call.engine, work).record_success(job)

    def send_probes(self) -> bool:
        """For each open circuit with a due probe, make one held job due. Circuits that failed recently come last.

        Returns:
            True if a circuit is open.
        """
        open_circuits = self.open().order_by("last_failure_at")
        if not open_circuits.exists():
            return False
        if not interval():
            for circuit in open_circuits:
                circuit.close("settings")
        else:
            for circuit in open_circuits.filter(next_probe_at__lte=Now()):
                circuit.send_probe()
        return True


def _isolates(job: Job | None) -> Q:
    return Q(isolated__contains=[job.subject]) if job else Q()


def is_one_endpoint() -> bool:
    addresses = {conf.base_url.rstrip("/") for conf in (settings.ENGINE, settings.EMBEDDING)}
    return len(addresses) == 1 and not settings.EMBEDDING.is_embedded


def _works_at_endpoint_of(work: str) -> list[str]:
    of_jobs = [Circuit.Work.TEXT, Circuit.Work.EMBEDDING]
    return [*of_jobs] if work in of_jobs and is_one_endpoint() else [work]


class Circuit(models.Model):
    """The circuit breaker of an engine for a kind of work. `failing` and `isolated` contain values of `Job.subject`."""

    class State(models.TextChoices):
        CLOSED = "closed"
        OPEN = "open"

    class Work(models.TextChoices):
        TEXT = "text"
        EMBEDDING = "embedding"
        QUERY = "query"  # calls in requests; they have their own circuits, because requests have short timeouts

    engine = models.CharField(max_length=255)
    work = models.CharField(max_length=16, choices=Work)
    state = models.CharField(max_length=8, choices=State, default=State.CLOSED)
    since = models.DateTimeField(default=timezone.now, help_text="When the circuit was last opened or closed.")
    holds_all = models.BooleanField(
        default=False,
        help_text="True if all jobs wait while the circuit is open. If false, only the jobs of the people in "
        "`failing` wait.",
    )
    reason = models.CharField(max_length=32, blank=True, help_text="Type of the latest error.")
    error = models.TextField(blank=True, help_text="Message of the latest error.")
    failures = models.PositiveIntegerField(default=0, help_text="Number of consecutive failed calls.")
    failing = ArrayField(
        models.BigIntegerField(),
        default=list,
        db_default=[],
        blank=True,
        help_text="Primary keys of people whose calls failed after the engine's last successful call.",
    )
    isolated = ArrayField(
        models.BigIntegerField(),
        default=list,
        db_default=[],
        blank=True,
        help_text="Primary keys of the people whose calls fail while other people's calls succeed.",
    )
    failed_job = models.BigIntegerField(null=True, blank=True)
    last_failure_at = models.DateTimeField(null=True, blank=True)
    next_probe_at = models.DateTimeField(default=timezone.now)
    probe = models.BigIntegerField(
        null=True,
        blank=True,
        help_text="Primary key of the latest job that was chosen as the probe. A probe calls the engine to check "
        "whether it works again.",
    )
    probe_subject = models.BigIntegerField(null=True, blank=True)
    is_probing = models.BooleanField(
        default=False, help_text="Whether a job was chosen as the probe and has not called the engine yet."
    )
    closed_by = models.CharField(max_length=255, blank=True)

    objects = CircuitQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["engine", "work"], name="circuit_unique")]

    def __str__(self) -> str:
        return f"{self.engine}, {self.work}"

    @property
    def is_of_queries(self) -> bool:
        """True if the circuit is for requests. Such a circuit holds no jobs."""
        return self.work == Circuit.Work.QUERY

    @property
    def is_open(self) -> bool:
        return self.state == Circuit.State.OPEN

    @property
    def is_unreachable(self) -> bool:
        return self.is_open and self.holds_all and self.reason in UNREACHABLE

    @property
    def other_unreachable(self) -> CircuitQuerySet:
        return Circuit.objects.at_endpoint_of(self.work).unreachable().exclude(pk=self.pk)

    @property
    def is_probe_due(self) -> bool:
        return self.next_probe_at <= timezone.now()

    @property
    def also_blocks_queries(self) -> bool:
        """True if this circuit, opened by jobs, also keeps queries from calling the engine. A rate limit doesn't."""
        is_rate_limited = FAILURE_CAUSES.get(self.reason) is FailureCause.LOAD
        return self.holds_all and not self.is_probe_due and not is_rate_limited

    @property
    def why(self) -> str:
        """An explanation for operators. It quotes no text."""
        whose = "" if self.holds_all else " for one person"
        return (
            f"The circuit of {self} has been open{whose} since {self.since:%H:%M:%S} UTC. {self.error} "
            f"It is retried every {PROBE_SECONDS:g} s."
        )

    # --- held and allowed jobs ---

    def holds(self, job: Job) -> bool:
        """Return whether the circuit holds a job. This includes the probe, which may call the engine (see `allows`)."""
        return self.is_open and (self.holds_all or job.subject in self.failing)

    def should_fail(self, job: Job) -> bool:
        """Return whether to fail a job, because it and its circuit have waited for a day, only for its person."""
        before = timezone.now() - GIVE_UP_AFTER
        return self.is_open and not self.holds_all and max(self.since, job.queued_at) < before

    def allows(self, job: Job) -> bool:
        """Return whether a job may call the engine. A held job may call it only as the probe.

        If a probe is due and no other person's job is held, this job becomes the probe.
        """
        is_probe = self.is_probing and self.probe == job.pk
        return is_probe or not self.holds(job) or (not self._holds_others(job) and self.reserve_probe(job))

    def _holds_others(self, job: Job) -> bool:
        return bool(self._held().exclude(about=job.subject).exists())

    def _held(self) -> Any:
        return Job.objects.held().filter(circuit=self).alias(about=SUBJECT)

    @transaction.atomic
    def hold(self, job: Job, same_engine_jobs: JobQuerySet, *, wait: timedelta = timedelta(0)) -> None:
        """Give up the claim on a job, and put it on hold until the circuit closes. The attempt doesn't count.

        Args:
            same_engine_jobs: jobs that need the same engine. The due ones are held too.
            wait: minimum wait. `close` may end it earlier.
        """
        this = Circuit.objects.select_for_update(no_key=True).get(pk=self.pk)
        until = database_now() + wait
        if not this.holds(job):  # the circuit was closed in the meantime
            return job.postpone(until, this.why, Job.Held.BACKOFF)
        job.postpone(until, this.why, Job.Held.CIRCUIT, circuit=this)
        others = same_engine_jobs.due()
        if this.is_probing and this.probe:
            others = others.exclude(pk=this.probe)
        if not this.holds_all:
            others = others.of_subject(job.subject)
        others.update(circuit=this, error=this.why)

    # --- probes ---

    def reserve_probe(self, job: Job | None = None) -> bool:
        """Reserve the probe if it is due. If the endpoint is down, postpone the probes of its other circuits.

        Return whether the probe was reserved. Only one of several concurrent callers succeeds.
        """
        now = database_now()
        due = Circuit.objects.open().filter(pk=self.pk, next_probe_at__lte=now)
        who = {"probe": job.pk, "probe_subject": job.subject, "is_probing": True} if job else {}
        with transaction.atomic():
            if self.is_unreachable:
                Circuit.objects.locked(self.engine, self.work)
            taken = bool(due.update(next_probe_at=now + interval(), **who))
            if taken and self.is_unreachable:
                self._postpone_other_probes(now + interval())
        return taken

    def _postpone_other_probes(self, until: datetime) -> None:
        """Postpone the probes of the endpoint's other circuits, which the caller has locked."""
        self.other_unreachable.filter(next_probe_at__lt=until).update(next_probe_at=until)

    @transaction.atomic
    def send_probe(self) -> None:
        """Make the next held job due as a probe. Prefer jobs of people whose calls have not failed.

        If nothing needs the engine any more, close the circuit instead.
        """
        job = self._next_probe()
        if self._engine_is_unused() or (job is None and self.next_probe_at < database_now() - UNUSED_AFTER):
            self.close("disuse")
        elif job and self.reserve_probe(job):
            Job.objects.held().filter(pk=job.pk).update(circuit=None, run_after=Now())

    def _engine_is_unused(self) -> bool:
        """Return whether the latest probe was completed without calling the engine."""
        if not self.is_probing or self.probe is None:
            return False
        return Job.objects.filter(pk=self.probe, status=Job.Status.COMPLETED).exists()

    def _next_probe(self) -> Job | None:
        held = self._held().order_by("about", "id")
        for failed in ([*self.failing, *self.isolated], self.isolated):
            if job := self._after_last(held.exclude(about__in=failed)):
                return job
        return self._after_last(held)

    def _after_last(self, jobs: Any) -> Job | None:
        """Return a job of the next person after the person of the last probe.

        If no other person has a job, return the same person's next job.
        """
        last = self.probe_subject
        ways = (
            [Q(about__gt=last), ~Q(about=last), Q(about=last, id__gt=self.probe)]
            if self.probe and last is not None
            else []
        )
        return next((job for way in (*ways, Q()) if (job := jobs.filter(way).first())), None)

    def release_probe(self, job: Job) -> None:
        """Make the next probe due now if this job was the probe and ended without calling the engine."""
        unused = Circuit.objects.open().filter(pk=self.pk, probe=job.pk, is_probing=True)
        unused.update(next_probe_at=Now(), is_probing=False)

    @transaction.atomic
    def try_now(self, actor: str) -> None:
        """Make the next probe due now.

        Raises:
            NotOpen: the circuit is closed.
        """
        if not Circuit.objects.open().filter(pk=self.pk).update(next_probe_at=Now()):
            raise NotOpen
        self._log("circuit_tried", actor)

    # --- effects of calls; the row is locked ---

    def record_failure(self, call: CallRecord, job: Job | None) -> None:
        """Count a failed call. Open the circuit if there are enough failures.

        While the circuit is closed, failures of isolated people are ignored.
        """
        subject = job.subject if job else None
        if subject in self.isolated and not self.is_open:
            return
        if subject is not None and subject not in self.failing:
            self.failing = [*self.failing, subject][:MAX_PEOPLE]
        self.failures += 1
        self.reason, self.error, self.last_failure_at = call.error_kind, call.error, database_now()
        self.is_probing = self.is_probing and not (job and job.pk == self.probe)
        is_at_once = FAILURE_CAUSES[call.error_kind] == FailureCause.CREDENTIAL
        is_unreachable = call.error_kind in UNREACHABLE and self.other_unreachable.exists()
        if is_at_once or is_unreachable or self.failures > 1:
            self._open(call, job, is_for_all=is_at_once or is_unreachable or self.failing != [subject])
        self.failed_job = job.pk if job else None
        self.save()

    def _open(self, call: CallRecord, job: Job | None, *, is_for_all: bool) -> None:
        """Open the circuit. If it is already open, extend it to all people or to the time requested by the endpoint."""
        now, wished = database_now(), timedelta(seconds=call.retry_after or 0)
        first = min(timedelta(seconds=FIRST_PROBE_SECONDS), interval())
        if is_for_all and not (self.is_open and self.holds_all):
            self.holds_all, self.next_probe_at = True, now + max(first, wished)
        elif not self.is_open:
            self.next_probe_at = now + max(interval(), wished)
        else:
            self.next_probe_at = max(self.next_probe_at, now + wished)
        if self.is_open:
            return
        self.state, self.since, self.closed_by = Circuit.State.OPEN, now, ""
        if self.is_unreachable:
            self._postpone_other_probes(now + first)
        if job:  # this job becomes a probe after all others
            self.probe, self.probe_subject = job.pk, job.subject
        if self.failed_job:  # hold the job that failed before, so that it becomes due together with the others
            Job.objects.later().filter(pk=self.failed_job).update(circuit=self)
        self._log("circuit_opened", f"job:{job.job_id}" if job else "request")

    def record_success(self, job: Job | None) -> None:
        if self.is_open:
            self.close(f"job:{job.job_id}" if job else "request", answered=job)
            return
        self._isolate(job)
        self.save(update_fields=["failures", "failing", "isolated"])

    def _isolate(self, answered: Job | None) -> None:
        """Isolate all people whose calls failed, except the person whose call succeeded."""
        subject = answered.subject if answered else None
        people = dict.fromkeys((*self.isolated, *self.failing))
        self.isolated = [person for person in people if person != subject][-MAX_PEOPLE:]
        self.failures, self.failing = 0, []

    def close_by_hand(self, actor: str) -> None:
        """Close the circuit without a successful call. New failures open it again.

        Raises:
            NotOpen: the circuit is already closed.
        """
        if not self.close(actor):
            raise NotOpen

    @transaction.atomic
    def close(self, actor: str, *, answered: Job | None = None) -> bool:
        """Close the circuit, and make all held jobs due. Return False if it was already closed.

        If only one person's calls failed, and the successful call was for another person's job (`answered`), isolate
        the first person. Their jobs keep their backoff. After an outage, isolate nobody.
        """
        this = Circuit.objects.locked(self.engine, self.work)
        if not this.is_open:
            return False
        now = database_now()
        if this.is_unreachable:
            this.other_unreachable.update(next_probe_at=now)
        if this.is_unreachable or len(this.failing) > 1:  # this was an outage
            this.failing = []
        is_lone = answered is not None and len(this.failing) == 1 and this.failing != [answered.subject]
        held = Job.objects.held().filter(circuit=this)
        held.update(circuit=None, run_after=Greatest(F("run_after"), now) if is_lone else now)
        this.state, this.since, this.closed_by = Circuit.State.CLOSED, now, actor
        if answered:
            this._isolate(answered)
        this.failures, this.failing, this.holds_all, this.is_probing = 0, [], False, False
        this.save()
        this._log("circuit_closed", actor)
        return True

    def _log(self, event: str, actor: str) -> None:
        payload = {"engine": self.engine, "work": self.work, "reason": self.reason}
        Event.objects.create(type=event, actor=actor, payload=payload)
        logger.warning(event, **payload)
