"""`waiting`: open and failed jobs in groups: their status, what holds them, and since when."""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Case, Count, DateTimeField, F, Min, Value, When
from django.db.models.functions import Now

from moments_app.jobs.process import Lane, processes
from moments_app.models import Job
from moments_app.models.job import JobQuerySet

DUE = "due"
GROUPED = ("status", "process", "waits_for")


@dataclass(frozen=True)
class Group:
    """Jobs in the same state.

    Args:
        waits_for: `due` for a worker, or one of `Job.Held`; blank if they are running or failed.
        since: when the first of them started to wait.
    """

    status: str
    process: str
    waits_for: str
    number: int
    since: datetime | None

    @property
    def lane(self) -> str:
        """The lane of the process; blank if this release has no such process."""
        return _lanes().get(self.process, "")


def waiting(among: JobQuerySet) -> list[Group]:
    """Count open and failed jobs, using one statement that reads only these."""
    queued = Job.Status.QUEUED
    waits_for = Case(
        When(status=queued, circuit__isnull=False, then=Value(Job.Held.CIRCUIT)),
        When(status=queued, run_after__lte=Now(), then=Value(DUE)),
        When(status=queued, held_by="", then=Value(Job.Held.BACKOFF)),  # put back by an earlier release
        When(status=queued, then=F("held_by")),
        default=Value(""),
    )
    since = Case(
        When(status=queued, circuit__isnull=False, then=F("circuit__since")),
        When(status=queued, run_after__lte=Now(), then=F("run_after")),
        When(status=queued, held_since=None, then=F("queued_at")),
        When(status=queued, then=F("held_since")),
        output_field=DateTimeField(),
    )
    jobs = among.filter(status__in=[*Job.OPEN, Job.Status.FAILED]).annotate(waits_for=waits_for)
    groups = jobs.values(*GROUPED).annotate(number=Count("*"), since=Min(since)).order_by()
    return [Group(*row) for row in groups.values_list(*GROUPED, "number", "since")]


def _lanes() -> dict[str, str]:
    return {process.name: Lane(process.lane).name.lower() for process in processes()}
