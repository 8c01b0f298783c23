"""What each call of a model cost and how it ended, and whether the engine should be left alone for now."""

from datetime import datetime, timedelta
from itertools import takewhile

from django.conf import settings
from django.db import models
from django.utils import timezone

from moments_app.engines.base import CallRecord
from moments_app.models.job import Job
from moments_app.models.prompt import PromptVersion

FAILURES_TO_OPEN = 3
LOOK_BACK = 20  # calls; doubling reaches the longest pause well before
LONGEST_PAUSE = timedelta(hours=1)


class EngineCallQuerySet(models.QuerySet["EngineCall"]):
    def closed_until(self, engine: str) -> datetime | None:
        """When `engine` may be tried again: its circuit opens after three failures in a row of one kind.

        Returns:
            The time of the last failure plus a pause that starts at `ENGINE__CIRCUIT_SECONDS` and doubles with each
            further failure up to an hour; None when it may be tried now. The state is the log itself.
        """
        pause = timedelta(seconds=settings.ENGINE.circuit_seconds)
        latest = list(self.filter(engine=engine).order_by("-created_at", "-id")[:LOOK_BACK])
        alike = takewhile(lambda call: call.error_kind and call.error_kind == latest[0].error_kind, latest)
        failures = sum(1 for _ in alike)
        if failures < FAILURES_TO_OPEN or not pause:
            return None
        last: datetime = latest[0].created_at
        longest: timedelta = min(pause * 2 ** (failures - FAILURES_TO_OPEN), LONGEST_PAUSE)
        until = last + longest
        return until if until > timezone.now() else None

    def keep(self, call: CallRecord, *, job: Job | None = None, prompt_version: PromptVersion | None = None) -> None:
        """Puts a call on record.

        Args:
            call: how it went.
            job: it was made for, which may have been deleted meanwhile, with its session.
            prompt_version: that was used.
        """
        self.create(
            job=Job.objects.filter(pk=job.pk).first() if job else None,
            prompt_version=prompt_version,
            purpose=call.purpose,
            engine=call.engine,
            input_tokens=call.input_tokens,
            output_tokens=call.output_tokens,
            latency_ms=call.latency_ms,
            ok=not call.error_kind,
            error_kind=call.error_kind,
            error=call.error,
        )


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
        indexes = [models.Index(fields=["engine", "-created_at", "-id"], name="engine_call_newest")]

    def __str__(self) -> str:
        return f"{self.purpose} by {self.engine}"
