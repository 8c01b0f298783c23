"""The table of scheduled tasks. `migrate` registers them with the queue, without duplicates.

The table lists the tasks that belong to no process, and the sweeps that processes declare. The queue and the command
`run_schedule` run each task by its name.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Any

from django.db.models import DurationField, Exists, ExpressionWrapper, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce, Now
from django_q.models import Schedule

from memoryproject.database.clocks import correct_times_nightly
from memoryproject.database.vacuum import vacuum
from moments_app.jobs.process import Timing, processes
from moments_app.models import Job
from moments_app.models.job import TASK
from moments_app.recall.index_words import index_words
from moments_app.reports.housekeeping import housekeeping, prune_items, prune_receipts
from moments_app.sessions.sweep import compact_sessions
from sessions_app.clock import TOLERANCE, TimeCorrection, database_now
from sessions_app.models.session import CHECKED_EVERY
from sessions_app.retention.retain import retain

RUN_TASK = "memoryproject.schedules.run_schedule"
PAUSED = 0  # the value of `Schedule.repeats` of a paused schedule
MISSED_INTERVALS = 3  # missed intervals after which the site counts as degraded


class UnknownSchedule(Exception):
    """No schedule has this name. The message lists the names."""


@dataclass(frozen=True)
class Scheduled:
    """A scheduled task.

    Args:
        run: A function with the argument `dry_run`. The string form of its result is a report. If the result has
            `failures`, the command `run_schedule` fails.
    """

    name: str
    run: Callable[..., object]
    timing: Timing

    def __str__(self) -> str:
        return str(self.timing)

    @property
    def does(self) -> str:
        return (inspect.getdoc(self.run) or "").partition("\n")[0]


def schedules() -> dict[str, Scheduled]:
    found = [
        Scheduled("index_words", index_words, Timing(minutes=1)),
        Scheduled("compact_sessions", compact_sessions, Timing(minutes=CHECKED_EVERY // timedelta(minutes=1))),
        Scheduled("prune_items", prune_items, Timing(minutes=10)),
        Scheduled("prune_receipts", prune_receipts, Timing(minutes=60)),
        Scheduled("housekeeping", housekeeping, Timing(daily_at=time(4))),
        Scheduled("put_times_back", correct_times_nightly, Timing(daily_at=time(2))),
        Scheduled("retain", retain, Timing(daily_at=time(3))),
        Scheduled("vacuum", vacuum, Timing(daily_at=time(5))),
    ]
    found += [Scheduled(each.name, each.sweep, each.sweep_timing) for each in processes() if each.sweep_timing]
    return {scheduled.name: scheduled for scheduled in found}


def schedule_named(name: str) -> Scheduled:
    """Return a scheduled task, or raise `UnknownSchedule`."""
    known = schedules()
    if name not in known:
        raise UnknownSchedule(f"There is no schedule {name}. Choose one of {', '.join(sorted(known))}.")
    return known[name]


def run_schedule(name: str) -> None:
    schedule_named(name).run()


# --- last runs ---


def with_runs(rows: "QuerySet[Schedule]") -> "QuerySet[Any]":
    """Annotate schedules with `last_run` (when it ended), `age`, and `waits` (whether it waits for a running job).

    Before its first run, a schedule's age counts from when it was first queued.
    """
    jobs = Job.objects.filter(process=TASK, task=OuterRef("name"))
    ended = jobs.filter(status=Job.Status.COMPLETED).order_by("-finished_at").values("finished_at")[:1]
    queued = jobs.order_by("queued_at").values("queued_at")[:1]
    age = ExpressionWrapper(Now() - Coalesce("last_run", Subquery(queued)), DurationField())
    waits = Exists(jobs.waiting_for_a_worker())
    annotated: QuerySet[Any] = rows.annotate(last_run=Subquery(ended), waits=waits).annotate(age=age)
    return annotated


def schedule_ages() -> dict[str, timedelta]:
    """Return the time since the last run of each schedule that was queued and is not paused."""
    return {row.name: row.age for row in _running() if row.age is not None}


def late_schedules() -> dict[str, timedelta]:
    """Return the ages of schedules that have missed `MISSED_INTERVALS`."""
    return {row.name: row.age for row in _running() if is_late(row)}


def _running() -> "QuerySet[Any]":
    return with_runs(Schedule.objects.filter(func=RUN_TASK).exclude(repeats=PAUSED))


def is_late(row: Any) -> bool:
    """Return whether a row of `with_runs` missed `MISSED_INTERVALS`, and isn't waiting for a running job."""
    if row.repeats == PAUSED or row.age is None or row.waits or row.name not in schedules():
        return False
    return bool(row.age > MISSED_INTERVALS * schedules()[row.name].timing.interval)


# --- the queue's table ---


def register_schedules(**_: Any) -> None:
    """Synchronize the queue's schedules with the table. Paused schedules stay paused."""
    known = schedules()
    for scheduled in known.values():
        timing = scheduled.timing
        fields = {
            "func": RUN_TASK,
            "args": repr((scheduled.name,)),
            "schedule_type": Schedule.MINUTES if timing.daily_at is None else Schedule.DAILY,
            "minutes": timing.minutes,
        }
        row, _created = Schedule.objects.update_or_create(name=scheduled.name, defaults=fields)
        _correct_next_run(row, timing)
    gone = Schedule.objects.filter(func=RUN_TASK).exclude(name__in=known)
    Job.objects.filter(process=TASK, task__in=gone.values("name")).delete()
    gone.delete()


def correct_next_runs() -> list[TimeCorrection]:
    """Correct wrong times of next runs, and return the corrections."""
    known, now, done = schedules(), database_now(), []
    for row in Schedule.objects.filter(func=RUN_TASK, name__in=known):
        latest = _latest_next_run(known[row.name].timing, now)
        as_read = Schedule.objects.filter(pk=row.pk, next_run=row.next_run)
        if row.next_run > latest + TOLERANCE and as_read.update(next_run=latest):
            done.append(TimeCorrection(f"django_q.Schedule.next_run ({row.name})", 1, row.next_run))
    return done


def _correct_next_run(row: Schedule, timing: Timing) -> None:
    """Correct a next run at the wrong time of day, or more than one interval away.

    The cause is a wrong clock, or a release that shortened the interval or changed the time of day. The queue computes
    each run from the previous one, so one wrong time would delay all later runs.
    """
    latest = _latest_next_run(timing, database_now())
    if row.next_run > latest or (timing.daily_at is not None and row.next_run.time() != timing.daily_at):
        row.next_run = latest
        row.save(update_fields=["next_run"])


def _latest_next_run(timing: Timing, now: datetime) -> datetime:
    if timing.daily_at is None:
        return now + timedelta(minutes=timing.minutes or 0)
    at = timing.daily_at
    today = now.replace(hour=at.hour, minute=at.minute, second=0, microsecond=0)
    return today if today > now else today + timedelta(days=1)
