"""Engine calls with their costs and results, the texts of failed calls, and the daily caps."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Self

from django.conf import settings
from django.db import models, transaction
from django.db.models import Count, OuterRef, Q, Subquery, Sum
from django.db.models.functions import Coalesce, TruncDate
from django.utils import timezone

from moments_app.engines import is_free
from moments_app.engines.interface import CallRecord, Exchange
from moments_app.models.failure import FailureGroup
from moments_app.models.job import Job, title_of
from moments_app.models.prompt import PromptVersion
from sessions_app.daily_limits import Call, current_call
from sessions_app.limited_operators import unlimited
from sessions_app.models import DailyUsage, UserProfile
from sessions_app.models.daily_limit import Amounts, Subject, tomorrow
from sessions_app.security.secret_key import seal, unseal

MICRO = Decimal("0.000001")
TRIAL = "try "  # prefix of the purpose of calls that try a prompt; they cost money, but delay no jobs


@dataclass(frozen=True)
class Pause:
    """A pause of engine calls, because a cap or limit is reached.

    Args:
        until: the end of a day.
        reason: the reason, as a sentence.
        subject: the key or application whose jobs wait; None if all jobs wait.
    """

    until: datetime
    reason: str
    subject: Subject | None = None


class EngineCallQuerySet(models.QuerySet["EngineCall"]):
    def made(self) -> Self:
        """Exclude the parts of combined calls. The tokens of a combined call are in its own row."""
        return self.filter(is_part=False)

    def failed(self) -> Self:
        return self.filter(ok=False)

    def with_invalid_answers(self, versions: models.QuerySet[PromptVersion]) -> Any:
        """Annotate prompt versions with `invalid_answers`, the number of invalid answers."""
        calls = self.filter(error_kind="invalid_answer", prompt_version=OuterRef("pk")).order_by()
        number = calls.values("prompt_version").annotate(number=Count("pk")).values("number")
        return versions.annotate(invalid_answers=Coalesce(Subquery(number), 0))

    def with_junk(self, versions: models.QuerySet[PromptVersion]) -> Any:
        """Annotate prompt versions with `kept` and `dropped`, the numbers of items kept and dropped from answers."""
        calls = self.judged().filter(prompt_version=OuterRef("pk")).order_by().values("prompt_version")
        kept = calls.annotate(number=Sum("kept_count")).values("number")
        dropped = calls.annotate(number=Sum("dropped_count")).values("number")
        return versions.annotate(kept=Coalesce(Subquery(kept), 0), dropped=Coalesce(Subquery(dropped), 0))

    def judged(self) -> Self:
        """Return calls whose answers were checked against the conversation."""
        return self.filter(Q(kept_count__gt=0) | Q(dropped_count__gt=0))

    def junk_by_day(self, versions: Iterable[PromptVersion], since: datetime) -> Any:
        """Return the numbers of items kept and dropped from answers, by day and version, oldest first."""
        calls = self.judged().filter(prompt_version__in=versions, created_at__gte=since)
        days = calls.annotate(day=TruncDate("created_at")).values("day", "prompt_version__number")
        sums = days.annotate(kept=Sum("kept_count"), dropped=Sum("dropped_count"))
        return sums.order_by("day", "prompt_version__number")

    def used_up(self, job: Job | None = None) -> Pause | None:
        """Return the pause until tomorrow if a cap or a limit is reached.

        A cap applies to all engines together, a limit to a key or an application. Both apply to one day in UTC.

        Args:
            job: the job that would call a model; None for the current request.
        """
        return self._cap_reached() or (_limit_reached(job) if job else _limit_of_call())

    def _cap_reached(self) -> Pause | None:
        calls, usd = settings.ENGINE.max_calls_per_day, settings.ENGINE.max_usd_per_day
        if not calls and not usd:
            return None
        today = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
        with unlimited():  # count the calls of all applications, even for an operator limited to some
            spent = self.made().filter(created_at__gte=today).aggregate(calls=Count("id"), usd=Sum("cost_usd"))
        tomorrow = today + timedelta(days=1)
        if calls and spent["calls"] >= calls:
            reason = f"Waiting for the next day: {spent['calls']} calls today reach ENGINE__MAX_CALLS_PER_DAY."
            return Pause(tomorrow, reason)
        if usd and (spent["usd"] or 0) >= usd:
            reason = f"Waiting for the next day: {spent['usd']:.2f} USD today reach ENGINE__MAX_USD_PER_DAY."
            return Pause(tomorrow, reason)
        return None

    @transaction.atomic
    def keep(self, call: CallRecord, *, job: Job | None = None, prompt_version: PromptVersion | None = None) -> None:
        """Record a call, and charge its key and application. A free call is only recorded if it failed.

        Args:
            job: the job that made the call. It may have been deleted in the meantime.
        """
        if is_free(call.engine) and not call.error_kind:
            return
        cost = cost_of(call.engine, call.input_tokens, call.output_tokens)
        with unlimited():  # because a call without a job belongs to no application
            there = Job.objects.filter(pk=job.pk).first() if job else None
            kept = self.create(
                job=there,
                failure=self._failure_of(call, there),
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
            if call.exchange and there and there.user_id and settings.ENGINE.keep_failed_days:
                KeptExchange.objects.keep(kept.pk, there.user_id, call.exchange)
            if not (call.is_part or is_free(call.engine)):
                whose = Call(job.counts_for) if job else current_call()
                whose.charge(Amounts(model_calls=1, usd=cost or Decimal(0)))

    def _failure_of(self, call: CallRecord, job: Job | None) -> FailureGroup | None:
        """Count a failed call. Return its failure group, or None if the call did not fail."""
        if not call.error_kind or call.is_aborted:
            return None
        process = job.process if job else call.purpose
        failure = FailureGroup.objects.find(job, process, call.error_kind, engine=call.engine)
        failure.add(call.error)
        return failure


def _limit_reached(job: Job) -> Pause | None:
    """Return the pause of a job if its key or application has used up today's limit."""
    for standing in DailyUsage.objects.standings(job.counts_for):
        if told := standing.models_used_up:
            return Pause(tomorrow(), f"Waiting for the next day: {told}", standing.subject)
    return None


def _limit_of_call() -> Pause | None:
    told = current_call().models_used_up
    return Pause(tomorrow(), told) if told else None


def cost_of(engine: str, input_tokens: int | None, output_tokens: int | None) -> Decimal | None:
    """Return the cost of a call in USD; None if the price or the number of tokens is unknown.

    Args:
        engine: the recorded name, e.g. `openai:gpt-4.1-mini`.
        input_tokens, output_tokens: the tokens of the request and of the answer.
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

    def keep(self, call_pk: int, user_pk: int, exchange: Exchange) -> None:
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
