"""What each call of a model cost and how it ended, and whether the budget of the day is used up."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Self

from django.conf import settings
from django.db import models
from django.db.models import Count, OuterRef, Q, Subquery, Sum
from django.db.models.functions import Coalesce
from django.utils import timezone

from moments_app.engines.interface import CallRecord
from moments_app.models.job import Job
from moments_app.models.prompt import PromptVersion
from sessions_app.limited_operators import unlimited

MICRO = Decimal("0.000001")
TRIAL = "try "  # so begins the purpose of calls by which operators try a prompt: they are paid, and delay no work


@dataclass(frozen=True)
class Pause:
    """The time until which engines are left alone, and the reason."""

    until: datetime
    reason: str


class EngineCallQuerySet(models.QuerySet["EngineCall"]):
    def failed(self) -> Self:
        return self.filter(ok=False)

    def with_invalid_answers(self, versions: models.QuerySet[PromptVersion]) -> Any:
        """Count the answers to each version that were no good, as `invalid_answers`: they tell of the prompt."""
        calls = self.filter(error_kind="invalid_answer", prompt_version=OuterRef("pk")).order_by()
        number = calls.values("prompt_version").annotate(number=Count("pk")).values("number")
        return versions.annotate(invalid_answers=Coalesce(Subquery(number), 0))

    def used_up(self) -> Pause | None:
        """Return the pause until tomorrow when a cap is reached; caps hold for all engines together, and a UTC day."""
        calls, usd = settings.ENGINE.max_calls_per_day, settings.ENGINE.max_usd_per_day
        if not calls and not usd:
            return None
        today = timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
        with unlimited():  # a limited operator's trial counts with all others
            spent = self.filter(created_at__gte=today).aggregate(calls=Count("id"), usd=Sum("cost_usd"))
        tomorrow = today + timedelta(days=1)
        if calls and spent["calls"] >= calls:
            reason = f"Waiting for tomorrow: {spent['calls']} calls today, ENGINE__MAX_CALLS_PER_DAY."
            return Pause(tomorrow, reason)
        if usd and (spent["usd"] or 0) >= usd:
            reason = f"Waiting for tomorrow: {spent['usd']:.2f} USD today, ENGINE__MAX_USD_PER_DAY."
            return Pause(tomorrow, reason)
        return None

    def keep(self, call: CallRecord, *, job: Job | None = None, prompt_version: PromptVersion | None = None) -> None:
        """Put a call on record.

        Args:
            call: how it went.
            job: it was made for, which may have been deleted meanwhile, with its session.
            prompt_version: that was used.
        """
        with unlimited():  # a call without a job is the site's, whoever had it made
            self.create(
                job=Job.objects.filter(pk=job.pk).first() if job else None,
                prompt_version=prompt_version,
                purpose=call.purpose,
                engine=call.engine,
                input_tokens=call.input_tokens,
                output_tokens=call.output_tokens,
                cost_usd=cost_of(call.engine, call.input_tokens, call.output_tokens),
                latency_ms=call.latency_ms,
                ok=not call.error_kind,
                error_kind=call.error_kind,
                error=call.error,
            )


def cost_of(engine: str, input_tokens: int | None, output_tokens: int | None) -> Decimal | None:
    """Return what a call cost, in USD; None when its price or its tokens aren't known.

    Args:
        engine: as it is recorded, e.g. `openai:gpt-4.1-mini`.
        input_tokens, output_tokens: given and answered.
    """
    prices = settings.ENGINE.prices.get(engine.partition(":")[2])
    if prices is None or input_tokens is None:
        return None
    given, answered = prices
    return Decimal((input_tokens * given + (output_tokens or 0) * answered) / 1_000_000).quantize(MICRO)


class EngineCall(models.Model):
    """One model or embedding call. Never holds prompt or completion text."""

    job = models.ForeignKey(Job, null=True, blank=True, on_delete=models.SET_NULL, related_name="engine_calls")
    purpose = models.CharField(max_length=32)
    engine = models.CharField(max_length=255)
    prompt_version = models.ForeignKey(PromptVersion, null=True, blank=True, on_delete=models.SET_NULL)
    input_tokens = models.PositiveIntegerField(null=True, blank=True)
    output_tokens = models.PositiveIntegerField(null=True, blank=True)
    cost_usd = models.DecimalField(
        max_digits=12, decimal_places=6, null=True, blank=True, help_text="Blank when the price is unknown."
    )
    latency_ms = models.PositiveIntegerField()
    ok = models.BooleanField()
    error_kind = models.CharField(max_length=32, blank=True)
    error = models.TextField(blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = EngineCallQuerySet.as_manager()

    class Meta:
        verbose_name = "engine call"
        indexes = [
            models.Index(fields=["engine", "-created_at", "-id"], name="engine_call_newest"),
            models.Index(fields=["-created_at"], include=["cost_usd"], name="engine_call_day"),
            models.Index(fields=["-created_at", "-id"], condition=Q(ok=False), name="engine_call_failed"),
            models.Index(
                fields=["prompt_version"], condition=Q(error_kind="invalid_answer"), name="engine_call_invalid"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.purpose} by {self.engine}"
