"""Circuit breakers: while an engine fails, its jobs are held, and one of them at a time calls it as a probe.

`About` says what a failure is about, and what follows from it. A text or an answer concerns its job alone. A rejected
credential opens the circuit at once. Load and the network open it when calls about two people fail and none is answered
in between. If both calls are about one person, the circuit opens for this person alone, whose text may be the cause.
One answer closes the circuit, and all held jobs are due at once.

A person whose calls fail while other people are answered is *isolated* until they are answered. Their failures open no
circuit, so nobody waits because of them.

An endpoint that is unavailable is unavailable for each of its models and kinds of work. So the circuits of an endpoint
take turns with probes, one failed call opens a second circuit, and an answer makes the probes of the others due.

A held job costs nothing: no worker takes it until the circuit closes or sends it as the next probe.
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

from moments_app.engines import Caller
from moments_app.engines.interface import ABOUT, About, CallRecord
from moments_app.models.job import SUBJECT, Job, JobQuerySet
from sessions_app.clock import database_now
from sessions_app.insert import insert_unless_there
from sessions_app.models import Event
from sessions_app.refusals import Refusal

OUTAGE = frozenset(kind for kind, about in ABOUT.items() if about in (About.CREDENTIAL, About.LOAD, About.NETWORK))
AWAY = frozenset({"unavailable", "server_error"})  # so is the endpoint, whatever it is asked for
PROBE_SECONDS = 30.0  # between two probes of an engine that fails; its jobs wait meanwhile. 0: no circuits
FIRST_PROBE_SECONDS = 3.0  # before the first one: calls about two people may fail in a row by chance
MOST_PEOPLE = 100  # in each of the two lists of a circuit
LONE = timedelta(days=1)  # for which one person's jobs are tried while nobody else asks anything

logger = structlog.get_logger(__name__)


def interval() -> timedelta:
    """Return the time between two probes; zero means no circuits."""
    return timedelta(seconds=PROBE_SECONDS)


class NotOpen(Refusal):
    """The engine is asked as usual."""

    def __init__(self) -> None:
        super().__init__("This circuit is already closed.")


class CircuitQuerySet(models.QuerySet["Circuit"]):
    def open(self) -> Self:
        """Keep those of engines that are left alone."""
        return self.filter(state=Circuit.State.OPEN)

    def with_held(self) -> Self:
        """Count the jobs that each holds, as `held`."""
        jobs = Job.objects.held().filter(circuit=OuterRef("pk")).order_by().values("circuit")
        number = jobs.annotate(number=Count("pk")).values("number")
        return self.annotate(held=Coalesce(Subquery(number), 0))

    def at_endpoint_of(self, work: str) -> Self:
        """Keep those whose jobs ask the endpoint that a kind of work asks."""
        return self.filter(work__in=_works_beside(work))

    def away(self) -> Self:
        """Keep those that hold everybody's jobs because their endpoint is away."""
        return self.open().filter(holds_all=True, reason__in=AWAY)

    def locked(self, engine: str, work: str) -> "Circuit":
        """Return a circuit, locked with those at its endpoint, in an order that all keep to."""
        rows = self.at_endpoint_of(work).order_by("pk").select_for_update(no_key=True)
        return next(row for row in rows if (row.engine, row.work) == (engine, work))

    def open_of(self, caller: Caller) -> "Circuit | None":
        """Return the circuit of an engine and its kind of work, if it is open."""
        return self.open().filter(engine=caller.name, work=caller.work).first() if interval() else None

    def is_sound(self, caller: Caller) -> bool:
        """Tell whether an engine has answered its last call, as far as is known."""
        return not self.filter(engine=caller.name, work=caller.work).exclude(state="closed", failures=0).exists()

    def refuse_query(self, engine: str) -> bool:
        """Tell whether a query has to do without an engine; now and then one asks all the same, as the probe."""
        if not interval():
            return False
        found = list(self.open().filter(engine=engine))
        if any(circuit.holds_all and not circuit.is_probe_due for circuit in found if not circuit.is_of_queries):
            return True
        return any(not circuit.take_probe() for circuit in found if circuit.is_of_queries)

    def note(self, call: CallRecord, work: str, *, job: Job | None = None) -> None:
        """Take in how a call of an engine ended: it may open or close the circuit.

        Args:
            call: as it is recorded.
            work: kind of it, a `Circuit.Work`.
            job: it was made for; None: for a request.
        """
        if call.is_broken_off or call.is_beside or not interval():
            return
        this = self.filter(engine=call.engine, work=work)
        if call.error_kind in OUTAGE:
            insert_unless_there(Circuit(engine=call.engine, work=work))
            with transaction.atomic():
                self.locked(call.engine, work).failed(call, job)
        elif this.filter(~Q(state=Circuit.State.CLOSED, failures=0) | _isolates(job)).exists():
            with transaction.atomic():
                self.locked(call.engine, work).answered(job)

    def send_probes(self) -> bool:
        """Make a held job due for each open circuit whose time has come, the one that failed last at the end.

        Returns:
            True if a circuit is open.
        """
        left_alone = self.open().order_by("last_failure_at")
        if not left_alone.exists():
            return False
        if not interval():
            for circuit in left_alone:
                circuit.close("settings")
        else:
            for circuit in left_alone.filter(next_probe_at__lte=Now()):
                circuit.send_probe()
        return True


def _isolates(job: Job | None) -> Q:
    """Return the condition that a circuit has isolated the person of a job."""
    return Q(isolated__contains=[job.subject]) if job else Q()


def is_one_endpoint() -> bool:
    """Return whether texts are written and embedded by the same endpoint."""
    addresses = {conf.base_url.rstrip("/") for conf in (settings.ENGINE, settings.EMBEDDING)}
    return len(addresses) == 1 and not settings.EMBEDDING.is_embedded


def _works_beside(work: str) -> list[str]:
    """Return the kinds of work of jobs that ask the same endpoint as one; requests go by what they see themselves."""
    of_jobs = [Circuit.Work.TEXT, Circuit.Work.EMBEDDING]
    return [*of_jobs] if work in of_jobs and is_one_endpoint() else [work]


class Circuit(models.Model):
    """The circuit breaker of an engine for a kind of work. People are primary keys, as `Job.subject`."""

    class State(models.TextChoices):
        CLOSED = "closed"
        OPEN = "open"

    class Work(models.TextChoices):
        TEXT = "text"
        EMBEDDING = "embedding"
        QUERY = "query"  # in a request, which has seconds only: its time-outs say nothing of jobs

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
        help_text="Primary keys of the people whose calls have failed since the engine last answered.",
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
        """True when requests alone are kept from asking; it holds no job."""
        return self.work == Circuit.Work.QUERY

    @property
    def is_open(self) -> bool:
        """True while the engine is left alone."""
        return self.state == Circuit.State.OPEN

    @property
    def is_away(self) -> bool:
        """True while everybody waits for its endpoint, as those do that ask it for something else."""
        return self.is_open and self.holds_all and self.reason in AWAY

    @property
    def beside(self) -> CircuitQuerySet:
        """The others that wait for the same endpoint to come back."""
        return Circuit.objects.at_endpoint_of(self.work).away().exclude(pk=self.pk)

    @property
    def is_probe_due(self) -> bool:
        """True when the next call may be tried."""
        return self.next_probe_at <= timezone.now()

    @property
    def why(self) -> str:
        """What an operator is told of an open one; it quotes no text."""
        whose = "" if self.holds_all else " for one person"
        return (
            f"The circuit of {self} has been open{whose} since {self.since:%H:%M:%S} UTC. {self.error} "
            f"It is retried every {PROBE_SECONDS:g} s."
        )

    # --- what is let in, and what is held ---

    def holds(self, job: Job) -> bool:
        """Tell whether a job has to wait for the circuit, unless it is the probe."""
        return self.is_open and (self.holds_all or job.subject in self.failing)

    def gives_up(self, job: Job) -> bool:
        """Tell whether one person's job fails for good: for a day it alone was tried, and failed."""
        before = timezone.now() - LONE
        return self.is_open and not self.holds_all and max(self.since, job.queued_at) < before

    def lets_in(self, job: Job) -> bool:
        """Return whether a job may call the engine: it isn't held, or is the probe, or becomes it as no other can."""
        is_probe = self.is_probing and self.probe == job.pk
        return is_probe or not self.holds(job) or (not self._holds_others(job) and self.take_probe(job))

    def _holds_others(self, job: Job) -> bool:
        """Return whether jobs about other people wait to be the probe."""
        return bool(self._held().exclude(about=job.subject).exists())

    def _held(self) -> Any:
        return Job.objects.held().filter(circuit=self).alias(about=SUBJECT)

    @transaction.atomic
    def hold(self, job: Job, alike: JobQuerySet, *, wait: timedelta = timedelta(0)) -> None:
        """Put back a job that a worker has claimed, until the circuit closes: the attempt doesn't count.

        Args:
            job: claimed.
            alike: jobs that need the same engine; those that are due are held with it, by the same statement.
            wait: when it failed and turns out to be the only one that does, it has to wait for so long.
        """
        this = Circuit.objects.select_for_update(no_key=True).get(pk=self.pk)
        until = database_now() + wait
        if not this.holds(job):  # it has been closed meanwhile
            return job.postpone(until, this.why, Job.Held.BACKOFF)
        job.postpone(until, this.why, Job.Held.CIRCUIT, circuit=this)
        others = alike.due()
        if this.is_probing and this.probe:
            others = others.exclude(pk=this.probe)
        if not this.holds_all:
            others = others.of_subject(job.subject)
        others.update(circuit=this, error=this.why)

    # --- probes ---

    def take_probe(self, job: Job | None = None) -> bool:
        """Take the probe that is due, for all at the endpoint if it is away; of several who try at once, one does."""
        now = database_now()
        due = Circuit.objects.open().filter(pk=self.pk, next_probe_at__lte=now)
        who = {"probe": job.pk, "probe_subject": job.subject, "is_probing": True} if job else {}
        with transaction.atomic():
            if self.is_away:
                Circuit.objects.locked(self.engine, self.work)
            taken = bool(due.update(next_probe_at=now + interval(), **who))
            if taken and self.is_away:
                self._put_off_beside(now + interval())
        return taken

    def _put_off_beside(self, until: datetime) -> None:
        """Have the others at the endpoint, which are locked, wait for what one of them is asked."""
        self.beside.filter(next_probe_at__lt=until).update(next_probe_at=until)

    @transaction.atomic
    def send_probe(self) -> None:
        """Make another held job due than the last time, if possible about a person whose calls have not failed."""
        job = self._next_probe()
        if job and self.take_probe(job):
            Job.objects.held().filter(pk=job.pk).update(circuit=None, run_after=Now())

    def _next_probe(self) -> Job | None:
        held = self._held().order_by("about", "id")
        for failed in ([*self.failing, *self.isolated], self.isolated):
            if job := self._after_last(held.exclude(about__in=failed)):
                return job
        return self._after_last(held)

    def _after_last(self, jobs: Any) -> Job | None:
        """Return the first job about the next person after the last probe's, or the next of that person."""
        last = self.probe_subject
        ways = (
            [Q(about__gt=last), ~Q(about=last), Q(about=last, id__gt=self.probe)]
            if self.probe and last is not None
            else []
        )
        return next((job for way in (*ways, Q()) if (job := jobs.filter(way).first())), None)

    def give_back_probe(self, job: Job) -> None:
        """Let another job be the probe, at once, when this one ended without asking."""
        unused = Circuit.objects.open().filter(pk=self.pk, probe=job.pk, is_probing=True)
        unused.update(next_probe_at=Now(), is_probing=False)

    @transaction.atomic
    def try_now(self, actor: str) -> None:
        """Have the next probe sent out at once.

        Raises:
            NotOpen: there is nothing to try.
        """
        if not Circuit.objects.open().filter(pk=self.pk).update(next_probe_at=Now()):
            raise NotOpen
        self._tell("circuit_tried", actor)

    # --- what calls lead to; each has the row locked ---

    def failed(self, call: CallRecord, job: Job | None) -> None:
        """Count a call that failed, and open the circuit if it says enough.

        While the circuit is closed, a failure of an isolated person says nothing about the engine.
        """
        subject = job.subject if job else None
        if subject in self.isolated and not self.is_open:
            return
        if subject is not None and subject not in self.failing:
            self.failing = [*self.failing, subject][:MOST_PEOPLE]
        self.failures += 1
        self.reason, self.error, self.last_failure_at = call.error_kind, call.error, database_now()
        self.is_probing = self.is_probing and not (job and job.pk == self.probe)
        is_at_once = ABOUT[call.error_kind] == About.CREDENTIAL
        is_away = call.error_kind in AWAY and self.beside.exists()
        if is_at_once or is_away or self.failures > 1:
            self._open(call, job, is_for_all=is_at_once or is_away or self.failing != [subject])
        self.failed_job = job.pk if job else None
        self.save()

    def _open(self, call: CallRecord, job: Job | None, *, is_for_all: bool) -> None:
        """Open the circuit; or if it is open, extend it to everybody or to the time that the endpoint names."""
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
        if self.is_away:
            self._put_off_beside(now + first)
        if job:  # which is tried again after others
            self.probe, self.probe_subject = job.pk, job.subject
        if self.failed_job:  # for the same reason
            Job.objects.later().filter(pk=self.failed_job).update(circuit=self)
        self._tell("circuit_opened", f"job:{job.job_id}" if job else "request")

    def answered(self, job: Job | None) -> None:
        """Close the circuit: the engine has answered."""
        if self.is_open:
            self.close(f"job:{job.job_id}" if job else "request", answered=job)
            return
        self._isolate(job)
        self.save(update_fields=["failures", "failing", "isolated"])

    def _isolate(self, answered: Job | None) -> None:
        """Isolate all people whose calls failed, except the one who was answered now."""
        one = answered.subject if answered else None
        people = dict.fromkeys((*self.isolated, *self.failing))
        self.isolated = [person for person in people if person != one][-MOST_PEOPLE:]
        self.failures, self.failing = 0, []

    def close_by_hand(self, actor: str) -> None:
        """Close it whatever the engine says; failures open it again.

        Raises:
            NotOpen: it is closed already.
        """
        if not self.close(actor):
            raise NotOpen

    @transaction.atomic
    def close(self, actor: str, *, answered: Job | None = None) -> bool:
        """Resume calls to the engine, and make all held jobs due. Return False if it was closed already.

        If only one person's calls failed, and a call about another person succeeded, isolate the first person. Their
        jobs keep their backoff. After an outage, no person is isolated.

        Args:
            actor: who closes it.
            answered: the job that got an answer.
        """
        this = Circuit.objects.locked(self.engine, self.work)
        if not this.is_open:
            return False
        now = database_now()
        if this.is_away:
            this.beside.update(next_probe_at=now)
        if this.is_away or len(this.failing) > 1:  # an outage
            this.failing = []
        is_lone = answered is not None and len(this.failing) == 1 and this.failing != [answered.subject]
        held = Job.objects.held().filter(circuit=this)
        held.update(circuit=None, run_after=Greatest(F("run_after"), now) if is_lone else now)
        this.state, this.since, this.closed_by = Circuit.State.CLOSED, now, actor
        if answered:
            this._isolate(answered)
        this.failures, this.failing, this.holds_all, this.is_probing = 0, [], False, False
        this.save()
        this._tell("circuit_closed", actor)
        return True

    def _tell(self, event: str, actor: str) -> None:
        payload = {"engine": self.engine, "work": self.work, "reason": self.reason}
        Event.objects.create(type=event, actor=actor, payload=payload)
        logger.warning(event, **payload)
