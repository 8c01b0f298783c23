"""Engine calls with their costs, the texts of failed calls, the daily caps, and failures grouped by cause.

Each failed engine call and each failed attempt of a job is counted for its cause. A cause consists of the process, the
engine and the kind of error. For errors not caused by an engine, it also includes the place. A failure is over when no
job waits because of it.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Self

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models, transaction
from django.db.models import Count, F, OuterRef, Q, Subquery, Sum
from django.db.models.functions import Coalesce, TruncDate
from django.utils import timezone

from moments_app.engines import is_free
from moments_app.engines.interface import CallRecord, Exchange
from moments_app.models.job import Job, title_of
from moments_app.models.prompt import PromptVersion
from sessions_app.database.sql import insert_if_missing
from sessions_app.limited_operators import unlimited
from sessions_app.models import Application, DailyUsage, UserProfile
from sessions_app.models.daily_limit import Amounts, Call, Subject, current_call, tomorrow
from sessions_app.security.encryption import seal, unseal

MICRO = Decimal("0.000001")
TRIAL = "try "  # prefix of the purpose of calls that try a prompt; they cost money, but delay no jobs
DEFECT, ARCHIVE, MISSING_PROMPT = "defect", "archive", "missing_prompt"  # kinds of errors not caused by an engine
PLACE_MAX = 255
STRIP_HOURS = 48


def cause_of_person(pk: int) -> str:
    return f"person:{pk}"


class FailureGroupQuerySet(models.QuerySet["FailureGroup"]):
    def expired(self) -> Self:
        """Return the failures that have no stalled jobs and were last seen more than `JOBS__KEEP_DAYS` days ago."""
        before = timezone.now() - timedelta(days=settings.JOBS.keep_days)
        return self.filter(last_seen_at__lt=before).exclude(pk__in=Job.objects.stalled().values("failure"))

    def with_stalled(self) -> Any:
        """Annotate failures with `stalled`, the number of jobs that failed or wait because of the failure."""
        failed = Job.objects.stalled().filter(failure=OuterRef("pk")).order_by().values("failure")
        opened = {"circuit__engine": OuterRef("engine"), "circuit__reason": OuterRef("kind")}
        held = Job.objects.held().filter(failure=None, process=OuterRef("process"), **opened).order_by()
        stalled = failed, held.values("process")
        numbers = [Subquery(jobs.annotate(number=Count("pk")).values("number")) for jobs in stalled]
        return self.annotate(stalled=Coalesce(numbers[0], 0) + Coalesce(numbers[1], 0))

    def find(self, job: Job | None, process: str, kind: str, *, engine: str = "", place: str = "") -> "FailureGroup":
        """Return the failure group of a cause. Create it if it doesn't exist.

        Args:
            job: the failed job; None for a call without a job.
            process: the process or purpose that failed.
            engine: the engine that was called; blank if no engine was called.
            place: where or why it failed, to distinguish failures of the same kind.
        """
        application = job.application_pk if job else None
        cause: dict[str, Any] = {"process": process, "engine": engine, "kind": kind, "place": place[:PLACE_MAX]}
        while (found := self.filter(application=application, **cause).first()) is None:
            found = FailureGroup(application_id=application, **cause)
            if insert_if_missing(found):
                break
        return found


class FailureGroup(models.Model):
    application = models.ForeignKey(Application, null=True, blank=True, on_delete=models.CASCADE, related_name="+")
    process = models.CharField(
        max_length=32, help_text="Type of the failed job. If a call failed outside a job: purpose of the call."
    )
    engine = models.CharField(max_length=255, blank=True)
    kind = models.CharField(max_length=32)
    place = models.CharField(
        max_length=PLACE_MAX,
        blank=True,
        help_text="The error message that these failures have in common. Blank if an engine returned the error.",
    )
    error = models.TextField(blank=True, help_text="Message of the latest error.")
    count = models.PositiveIntegerField(default=0)
    first_seen_at = models.DateTimeField(default=timezone.now)
    last_seen_at = models.DateTimeField(default=timezone.now, db_index=True)
    muted_at = models.DateTimeField(null=True, blank=True)
    muted_by = models.CharField(max_length=255, blank=True)
    muted_causes = ArrayField(
        models.TextField(),
        default=list,
        db_default=[],
        blank=True,
        help_text="Keys of the muted incidents that the failure belongs to.",
    )

    objects = FailureGroupQuerySet.as_manager()

    class Meta:
        verbose_name = "failure"
        constraints = [
            models.UniqueConstraint(
                fields=["application", "process", "engine", "kind", "place"],
                nulls_distinct=False,
                name="failure_one_of_each_cause",
            )
        ]

    def __str__(self) -> str:
        return f"{self.title}: {self.kind.replace('_', ' ')}"

    @property
    def title(self) -> str:
        return title_of(self.process)

    @transaction.atomic
    def add(self, error: str) -> None:
        """Count another failure. If no job waits because of the failure, this starts a new, unmuted incident."""
        self.unmute_ended(None)
        now = timezone.now()
        hour = now.replace(minute=0, second=0, microsecond=0)
        FailureGroup.objects.filter(pk=self.pk).update(count=F("count") + 1, last_seen_at=now, error=error)
        insert_if_missing(FailureHour(failure=self, hour=hour, count=0))
        self.hours.filter(hour=hour).update(count=F("count") + 1)

    def by_hour(self) -> list[tuple[datetime, int]]:
        """Return the number of failures in each of the last `STRIP_HOURS` hours, oldest first."""
        last = timezone.now().replace(minute=0, second=0, microsecond=0)
        hours = [last - timedelta(hours=back) for back in range(STRIP_HOURS - 1, -1, -1)]
        counts = dict(self.hours.filter(hour__gte=hours[0]).values_list("hour", "count"))
        return [(hour, counts.get(hour, 0)) for hour in hours]

    def mute(self, cause: str, *, actor: str) -> None:
        self._set_muted(lambda causes: {*causes, cause}, timezone.now(), actor)

    def unmute(self, cause: str) -> None:
        self._set_muted(lambda causes: {*causes} - {cause}, None, "")

    def unmute_ended(self, person: int | None) -> None:
        """Unmute the incidents that are over.

        If no job waits because of the failure, unmute all of its incidents. If the person has no waiting jobs, unmute
        the person's incident. `person` is the primary key of the person whose job has ended, if any.
        """
        stalled = Job.objects.stalled().filter(failure=self)
        if self.muted_causes and not stalled.exists():
            self._set_muted(lambda causes: set(), None, "")
        elif self.muted_causes and person and not stalled.filter(user=person).exists():
            self.unmute(cause_of_person(person))

    @transaction.atomic
    def _set_muted(self, change: Callable[[list[str]], set[str]], at: datetime | None, actor: str) -> None:
        this = FailureGroup.objects.select_for_update(no_key=True).get(pk=self.pk)
        this.muted_causes = sorted(change(this.muted_causes))
        if at or not this.muted_causes:
            this.muted_at, this.muted_by = at, actor
        this.save(update_fields=["muted_at", "muted_by", "muted_causes"])


class FailureHour(models.Model):
    failure = models.ForeignKey(FailureGroup, on_delete=models.CASCADE, related_name="hours", db_index=False)
    hour = models.DateTimeField()
    count = models.PositiveIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["failure", "hour"], name="failure_hour_unique")]

    def __str__(self) -> str:
        return f"{self.hour:%Y-%m-%d %H:00}: {self.count}"


@dataclass(frozen=True)
class Pause:
    """A pause of engine calls, because a cap or limit was reached."""

    until: datetime  # the end of a day
    reason: str  # the reason, as a sentence
    subject: Subject | None = None  # the key or application whose jobs wait; None if all jobs wait


class EngineCallQuerySet(models.QuerySet["EngineCall"]):
    def without_parts(self) -> Self:
        """Exclude the parts of combined calls. The row of the combined call has the tokens of all its parts."""
        return self.filter(is_part=False)

    def failed(self) -> Self:
        return self.filter(ok=False)

    def with_invalid_answers(self, versions: models.QuerySet[PromptVersion]) -> Any:
        calls = self.filter(error_kind="invalid_answer", prompt_version=OuterRef("pk")).order_by()
        number = calls.values("prompt_version").annotate(number=Count("pk")).values("number")
        return versions.annotate(invalid_answers=Coalesce(Subquery(number), 0))

    def with_dropped(self, versions: models.QuerySet[PromptVersion]) -> Any:
        """Annotate prompt versions with the numbers of items `kept` in answers and `dropped` from them."""
        calls = self.checked().filter(prompt_version=OuterRef("pk")).order_by().values("prompt_version")
        kept = calls.annotate(number=Sum("kept_count")).values("number")
        dropped = calls.annotate(number=Sum("dropped_count")).values("number")
        return versions.annotate(kept=Coalesce(Subquery(kept), 0), dropped=Coalesce(Subquery(dropped), 0))

    def checked(self) -> Self:
        """Return calls whose answers were checked against the conversation."""
        return self.filter(Q(kept_count__gt=0) | Q(dropped_count__gt=0))

    def dropped_by_day(self, versions: Iterable[PromptVersion], since: datetime) -> Any:
        """Return the numbers of items kept in answers and dropped from them, by day and version, oldest first."""
        calls = self.checked().filter(prompt_version__in=versions, created_at__gte=since)
        days = calls.annotate(day=TruncDate("created_at")).values("day", "prompt_version__number")
        sums = days.annotate(kept=Sum("kept_count"), dropped=Sum("dropped_count"))
        return sums.order_by("day", "prompt_version__number")

    def reached_limit(self, job: Job | None = None) -> Pause | None:
        """Return the pause until tomorrow if a cap or a limit is reached. Both apply to one day in UTC.

        A cap applies to all engines together. A limit applies to the key or application of the job or of the current
        request.
        """
        return self._cap_reached() or (_limit_reached(job) if job else _limit_of_call())

    def _cap_reached(self) -> Pause | None:
        calls, usd = settings.ENGINE.max_calls_per_day, settings.ENGINE.max_usd_per_day
        if not calls and not usd:
            return None
        today = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
        with unlimited():  # count the calls of all applications, even for an operator limited to some
            spent = self.without_parts().filter(created_at__gte=today).aggregate(calls=Count("id"), usd=Sum("cost_usd"))
        tomorrow = today + timedelta(days=1)
        if calls and spent["calls"] >= calls:
            reason = f"Waiting for the next day: {spent['calls']} calls today reach ENGINE__MAX_CALLS_PER_DAY."
            return Pause(tomorrow, reason)
        if usd and (spent["usd"] or 0) >= usd:
            reason = f"Waiting for the next day: {spent['usd']:.2f} USD today reach ENGINE__MAX_USD_PER_DAY."
            return Pause(tomorrow, reason)
        return None

    @transaction.atomic
    def record(self, call: CallRecord, *, job: Job | None = None, prompt_version: PromptVersion | None = None) -> None:
        """Record a call, and charge its key and application. A free call is only recorded if it failed.

        The job may have been deleted in the meantime.
        """
        if is_free(call.engine) and not call.error_kind:
            return
        cost = cost_of(call.engine, call.input_tokens, call.output_tokens)
        with unlimited():  # because a call without a job belongs to no application
            existing = Job.objects.filter(pk=job.pk).first() if job else None
            created = self.create(
                job=existing,
                failure=self._failure_of(call, existing),
                prompt_version=prompt_version,
                purpose=call.purpose,
                engine=call.engine,
                input_tokens=call.input_tokens,
                output_tokens=call.output_tokens,
                cost_usd=cost,
                latency_ms=call.latency_ms,
                ok=not call.error_kind,
                error_kind=call.error_kind,
                error=call.error,
                kept_count=call.kept,
                dropped_count=sum(call.dropped.values()),
                dropped_reasons=dict(call.dropped),
                is_part=call.is_part,
            )
            if call.exchange and existing and existing.user_id and settings.ENGINE.keep_failed_days:
                KeptExchange.objects.store(created.pk, existing.user_id, call.exchange)
            if not (call.is_part or is_free(call.engine)):
                whose = Call(job.limit_subjects) if job else current_call()
                whose.charge(Amounts(model_calls=1, usd=cost or Decimal(0)))

    def _failure_of(self, call: CallRecord, job: Job | None) -> FailureGroup | None:
        if not call.error_kind or call.is_aborted:
            return None
        process = job.process if job else call.purpose
        failure = FailureGroup.objects.find(job, process, call.error_kind, engine=call.engine)
        failure.add(call.error)
        return failure


def _limit_reached(job: Job) -> Pause | None:
    for usage_status in DailyUsage.objects.usage_statuses(job.limit_subjects):
        if reason := usage_status.models_used_up:
            return Pause(tomorrow(), f"Waiting for the next day: {reason}", usage_status.subject)
    return None


def _limit_of_call() -> Pause | None:
    reason = current_call().models_used_up
    return Pause(tomorrow(), reason) if reason else None


def cost_of(engine: str, input_tokens: int | None, output_tokens: int | None) -> Decimal | None:
    """Return the cost of a call in USD; None if the price or the number of tokens is unknown.

    Args:
        engine: the recorded name, such as `openai:gpt-4.1-mini`.
    """
    prices = settings.ENGINE.prices.get(engine.partition(":")[2])
    if prices is None or input_tokens is None:
        return None
    given, answered = prices
    return Decimal((input_tokens * given + (output_tokens or 0) * answered) / 1_000_000).quantize(MICRO)


class EngineCall(models.Model):
    """A call of a language model or an embedding model. `KeptExchange` has the texts of a failed call."""

    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="engine_calls")
    purpose = models.CharField(max_length=32)
    engine = models.CharField(max_length=255)
    prompt_version = models.ForeignKey(PromptVersion, null=True, blank=True, on_delete=models.SET_NULL)
    input_tokens = models.PositiveIntegerField(null=True, blank=True)
    output_tokens = models.PositiveIntegerField(null=True, blank=True)
    cost_usd = models.DecimalField(
        max_digits=12, decimal_places=6, null=True, blank=True, help_text="Cost in USD. Blank if the price is unknown."
    )
    latency_ms = models.PositiveIntegerField()
    ok = models.BooleanField()
    error_kind = models.CharField(max_length=32, blank=True)
    error = models.TextField(blank=True)
    kept_count = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Number of sentences and items that were kept from the engine's answer."
    )
    dropped_count = models.PositiveIntegerField(
        default=0,
        db_default=0,
        help_text="Number of sentences and items that were dropped from the engine's answer, for example because "
        "the conversation doesn't support them.",
    )
    dropped_reasons = models.JSONField(
        default=dict,
        db_default={},
        blank=True,
        help_text="Number of sentences and items that were dropped for each reason.",
    )
    is_part = models.BooleanField(
        "part of a combined call",
        default=False,
        db_default=False,
        help_text="Whether this row records one task of a call that combined several tasks. The tokens, "
        "cost and duration are in the row of the combined call.",
    )
    failure = models.ForeignKey(
        FailureGroup, null=True, blank=True, on_delete=models.SET_NULL, related_name="calls", db_index=False
    )
    created_at = models.DateTimeField(auto_now_add=True)

    objects = EngineCallQuerySet.as_manager()

    class Meta:
        verbose_name = "engine call"
        indexes = [
            models.Index(fields=["engine", "-created_at", "-id"], name="engine_call_newest"),
            models.Index(fields=["-created_at"], include=["cost_usd"], name="engine_call_day"),
            models.Index(fields=["-created_at", "-id"], condition=Q(ok=False), name="engine_call_failed"),
            models.Index(fields=["failure", "-id"], condition=Q(failure__isnull=False), name="engine_call_failure"),
            models.Index(
                fields=["prompt_version"], condition=Q(error_kind="invalid_answer"), name="engine_call_invalid"
            ),
            models.Index(
                fields=["prompt_version", "created_at"],
                include=["kept_count", "dropped_count"],
                condition=Q(kept_count__gt=0) | Q(dropped_count__gt=0),
                name="engine_call_judged",
            ),
        ]

    def __str__(self) -> str:
        return f"{title_of(self.purpose)} by {self.engine}"


class KeptExchangeQuerySet(models.QuerySet["KeptExchange"]):
    def expired(self) -> Self:
        return self.filter(created_at__lt=timezone.now() - timedelta(days=settings.ENGINE.keep_failed_days))

    def store(self, call_pk: int, user_pk: int, exchange: Exchange) -> None:
        sealed = seal(json.dumps(asdict(exchange)).encode(), _about(call_pk))
        self.create(call_id=call_pk, user_id=user_pk, sealed=sealed)


class KeptExchange(models.Model):
    """The texts of a failed call, encrypted. They are deleted together with the person."""

    call = models.OneToOneField("moments_app.EngineCall", on_delete=models.CASCADE, related_name="exchange")
    user = models.ForeignKey(UserProfile, on_delete=models.CASCADE, related_name="+")
    sealed = models.BinaryField()
    created_at = models.DateTimeField(default=timezone.now, db_index=True)

    objects = KeptExchangeQuerySet.as_manager()

    def __str__(self) -> str:
        return f"exchange of call {self.call_id}"

    @property
    def exchange(self) -> Exchange | None:
        """The decrypted texts; None if the key no longer exists."""
        opened = unseal(self.sealed, _about(self.call_id))
        return Exchange(**json.loads(opened)) if opened else None


def _about(call_pk: int) -> str:
    return f"call {call_pk}"
