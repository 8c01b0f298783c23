"""Failures grouped by cause, with counts and times.

Each failed engine call and each failed attempt of a job is counted for its cause. A cause consists of the process, the
engine and the kind of error. For errors not caused by an engine, it also includes the place. A failure is over when no
job waits because of it.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Self

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models, transaction
from django.db.models import Count, F, OuterRef, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone

from moments_app.models.job import Job, title_of
from sessions_app.database.sql import insert_if_missing
from sessions_app.models import Application

DEFECT, ARCHIVE, MISSING_PROMPT = "defect", "archive", "missing_prompt"  # kinds of errors not caused by an engine
PLACE_MAX = 255
STRIP_HOURS = 48


def cause_of_person(pk: int) -> str:
    """Return the key of an incident caused by one person's texts."""
    return f"person:{pk}"


class FailureGroupQuerySet(models.QuerySet["FailureGroup"]):
    def expired(self) -> Self:
        """Return failures without stalled jobs that were last seen more than `JOBS__KEEP_DAYS` ago."""
        before = timezone.now() - timedelta(days=settings.JOBS.keep_days)
        return self.filter(last_seen_at__lt=before).exclude(pk__in=Job.objects.stalled().values("failure"))

    def with_stalled(self) -> Any:
        """Annotate failures with `stalled`, the number of jobs that failed or wait because of the failure."""
        failed = Job.objects.stalled().filter(failure=OuterRef("pk")).order_by().values("failure")
        opened = {"circuit__engine": OuterRef("engine"), "circuit__reason": OuterRef("kind")}
        held = Job.objects.held().filter(failure=None, process=OuterRef("process"), **opened).order_by()
        both = failed, held.values("process")
        numbers = [Subquery(jobs.annotate(number=Count("pk")).values("number")) for jobs in both]
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
    """All failures with the same cause."""

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

        If no job waits because of the failure, unmute all of its incidents. If the person has no waiting
        jobs, unmute the person's incident.

        Args:
            person: primary key of the person whose job has ended; None if the job was about no person.
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
