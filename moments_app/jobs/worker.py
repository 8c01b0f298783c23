"""Workers are processes that run due jobs, one at a time. They share no state.

The queue is the table of jobs. If a worker is killed, its job's row remains, so no job is lost and no lock is left. The
watchdog recovers jobs without a live worker (`watch_jobs`). Workers also do this when they start or have lost their
connection.

**Lanes.** Each process and each worker belongs to a lane. A worker claims due jobs from its own lane, then from more
urgent lanes, but never from less urgent ones. So a summary for a waiting user is never delayed by embedding or bulk
work. The last worker claims jobs from all lanes. A worker that runs schedules claims them first.

**Rest.** On an idle site, only the last worker runs. It starts the others when it has been busy for `BUSY_SECONDS`. The
watchdog starts them when a job is overdue. They end after `IDLE_SECONDS` without a job. While the last worker is busy,
it wakes them repeatedly.

**Fairness.** Within a lane, a worker continues with the next person who has a due job. A person never has two running
jobs, so a less urgent job would delay this person's more urgent ones. Therefore the worker claims this person's most
urgent job, from any lane.
"""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import FrameType

import structlog
from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.db.models.functions import Now
from django_q.scheduler import scheduler
from opentelemetry.trace import Span, SpanKind

from memoryproject.process_tree import WAKE, signals_as_bytes
from moments_app.jobs.process import Lane, names_in, processes
from moments_app.jobs.runner import JobTimeout, Stopped, run_claimed
from moments_app.jobs.scheduled import next_schedule
from moments_app.models import Circuit, Job
from moments_app.models.job import TASK
from sessions_app.database.deferred import IDLE, Channel, NotificationListener, wake
from sessions_app.trace import HEADER, continue_trace

IDLE_SECONDS = 60.0  # seconds without a job, not counting tasks, after which a worker ends; the last worker never ends
BUSY_SECONDS = 0.2  # seconds of work after which the last worker starts the others
BUSY_SECONDS_OF_TASKS = 1.0  # the same for tasks; longer, because some run every minute and most are short
RECOVERY_SECONDS = 5.0  # seconds between the watchdog's checks for lost jobs and due schedules
OVERDUE_SECONDS = 1.0  # seconds after which a due job counts as overdue, because its notification may be lost
PROBE_SECONDS = 1.0  # seconds between checks of open circuits
RETRY_SECONDS = 2.0  # seconds until a retry if the database doesn't respond
GRACE_SECONDS = 20  # seconds that a job has to finish after SIGTERM

_PROC = Path("/proc")
_ENDED = frozenset("ZX")  # states of processes that have ended, but are still listed

logger = structlog.get_logger(__name__)


def lanes_of(number: int, workers: int) -> list[Lane]:
    """Return the lanes from which the worker with this number (from 0) claims jobs, its own first.

    The last worker claims jobs from all lanes. With five workers or more, the first runs schedules only.
    """
    schedules, *others = Lane
    if number == workers - 1:
        return sorted(Lane, reverse=True)
    if workers >= len(Lane) and number == 0:
        return [schedules]
    own = Lane.BUILD if workers == 2 else others[(number - (workers >= len(Lane))) % (len(others) - 1)]
    return [lane for lane in reversed(others) if lane <= own]


class Worker:
    """A worker process.

    Args:
        lanes: the lanes from which it claims jobs, its own first.
        exits_when_idle: whether the worker ends when it is idle. The worker that may not end starts the others.
    """

    def __init__(self, lanes: list[Lane], *, exits_when_idle: bool = False) -> None:
        self._exits_when_idle = exits_when_idle
        self._woken_at = self._worked_at = time.monotonic()
        self._times_out_at = 0.0
        self._runs_schedules = Lane.SCHEDULED in lanes
        self._channels = [Channel.JOBS] if lanes != [Lane.SCHEDULED] else []
        self._channels += [Channel.TASKS] if self._runs_schedules else []
        self._processes: dict[Lane, list[str]] = {lane: names_in(lane) for lane in lanes if lane != Lane.SCHEDULED}
        self._last_subject = dict.fromkeys(lanes, Job.FIRST_SUBJECT)  # the person of the last job, by lane
        self._name = process_name()
        self._may_have_lost_a_job = True  # an earlier process or connection may have died during a job
        self._stopping = threading.Event()

    def serve(self) -> None:
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGALRM, self._alarm)
        with signals_as_bytes() as signals:
            try:
                self._run_jobs(NotificationListener(*self._channels, interrupt=signals))
            except Stopped:
                return
            finally:
                signal.alarm(0)  # a pending alarm would kill the process later

    def _run_jobs(self, notifications: NotificationListener) -> None:
        if not self._exits_when_idle:  # this worker starts with the site
            with suppress(DatabaseError):
                Job.objects.resume_postponed()  # changed settings may release held jobs
        while not self._stopping.is_set():
            try:
                if self._run_one():
                    continue
                if self._exits_when_idle and time.monotonic() - self._worked_at > IDLE_SECONDS:
                    return
                notifications.wait(Job.objects.next_due(within=IDLE))
                self._woken_at = time.monotonic()
            except DatabaseError as error:
                logger.warning("the database does not answer", error=type(error).__name__)
                connection.close()
                self._may_have_lost_a_job = True
                self._stopping.wait(RETRY_SECONDS)

    def _run_one(self) -> bool:
        """Run one job. Return False if no job was due."""
        if self._may_have_lost_a_job:
            recover_jobs(idle=self._name)
            self._may_have_lost_a_job = False
        return (self._runs_schedules and self._run(Job.objects.claim_task(self._name))) or any(
            self._run(self._claimed(lane)) for lane in self._processes
        )

    def _claimed(self, lane: Lane) -> Job | None:
        urgent = [name for other in sorted(self._processes) if other < lane for name in self._processes[other]]
        after = self._last_subject[lane]
        job = Job.objects.claim_next(self._processes[lane], after=after, urgent=urgent, worker=self._name)
        self._last_subject[lane] = job.subject if job else Job.FIRST_SUBJECT  # saves a query in the next search
        return job

    def _run(self, job: Job | None) -> bool:
        if job is None:
            return False
        with self._limited(is_task=job.process == TASK), _trace(job):
            run_claimed(job)
        if job.process != TASK:  # some tasks run every minute, and the last worker runs them as well
            self._worked_at = time.monotonic()
        return True

    @contextmanager
    def _limited(self, *, is_task: bool = False) -> Iterator[None]:
        """Stop a job that exceeds the time limit.

        If the last worker is busy for a long time, it also wakes the other workers.
        """
        now, limit = time.monotonic(), settings.JOB_SECONDS
        self._times_out_at = now + limit
        alone = max(self._woken_at + (BUSY_SECONDS_OF_TASKS if is_task else BUSY_SECONDS) - now, 0.001)
        signal.setitimer(signal.ITIMER_REAL, limit if self._exits_when_idle else min(alone, limit), limit)
        try:
            yield
        finally:
            signal.alarm(0)

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping.set()
        signal.alarm(GRACE_SECONDS)

    def _alarm(self, _number: int, _frame: FrameType | None) -> None:
        if self._stopping.is_set():
            raise Stopped
        limit, left = settings.JOB_SECONDS, self._times_out_at - time.monotonic()
        if left <= 0:
            raise JobTimeout(f"It took longer than {limit} s.")
        signal.setitimer(signal.ITIMER_REAL, min(IDLE_SECONDS / 2, left), limit)
        os.kill(os.getppid(), WAKE)


def _trace(job: Job) -> AbstractContextManager[Span]:
    numbers: dict[str, str | int] = {"job.id": str(job.job_id), "job.process": job.process, "job.attempt": job.attempts}
    return continue_trace({HEADER: job.trace}, f"job {job.process}", SpanKind.CONSUMER, **numbers)


def serve(number: int, workers: int) -> None:
    Worker(lanes_of(number, workers), exits_when_idle=exits_when_idle(number, workers)).serve()


def exits_when_idle(number: int, workers: int) -> bool:
    """Return whether an idle worker may end. Only the last worker may not."""
    return number < workers - 1


def watch_jobs(ending: threading.Event) -> None:
    """Queue due schedules, recover jobs, send probes and wake workers, until `ending` is set.

    While notifications arrive, check every `RECOVERY_SECONDS`. Otherwise check every `IDLE` seconds, and when the next
    schedule is due.
    """
    notifications = NotificationListener(Channel.JOBS)
    while not ending.is_set():
        looked_at, was_notified = time.monotonic(), False
        scheduler()  # the scheduler logs its own errors
        try:
            recover_jobs()
            _wake_for_due_jobs()
            is_open = Circuit.objects.send_probes()
            if not is_open:
                was_notified = notifications.wait(next_schedule(within=IDLE))
        except DatabaseError as error:
            logger.warning("the database does not answer", error=type(error).__name__)
            connection.close()
            ending.wait(RETRY_SECONDS)
        else:
            pause = PROBE_SECONDS if is_open else RECOVERY_SECONDS
            # After a notification, don't check again before the new job could be overdue.
            shortest = OVERDUE_SECONDS + 0.1 if was_notified else 0.0
            ending.wait(max(looked_at + pause - time.monotonic(), shortest))
    connection.close()


def _wake_for_due_jobs() -> None:
    """Wake all workers and start resting ones if a job is overdue, because its notification may have been lost."""
    known = [process.name for process in processes()]
    overdue = Now() - timedelta(seconds=OVERDUE_SECONDS)
    if Job.objects.claimable().filter(process__in=known, run_after__lt=overdue).exists():
        os.kill(os.getppid(), WAKE)
        for channel in (Channel.JOBS, Channel.TASKS):
            wake(channel)


# --- recovery: jobs whose worker died or stopped responding ---


@dataclass(frozen=True)
class RecoveryResult:
    requeued: int
    failed: int  # number of jobs that failed after too many attempts
    restarted: int  # number of restarts by `Process.recover`


@transaction.atomic
def recover_jobs(*, idle: str = "") -> RecoveryResult:
    """Requeue or fail the running jobs whose worker died or stopped responding. Restart work that has no job.

    Args:
        idle: the name of an idle worker. Its running jobs were lost with its connection, so they are recovered too.
    """
    ended = [name for name in Job.objects.workers() if name == idle or has_ended(name)]
    stale = list(Job.objects.stale(ended).select_for_update(skip_locked=True, no_key=True))
    dead = [job for job in stale if job.attempts >= settings.JOBS.max_attempts]
    alive = [job for job in stale if job.attempts < settings.JOBS.max_attempts]
    restarted = sum(process.recover() for process in processes())
    for job in dead:
        job.fail(f"The worker crashed or stopped responding {job.attempts} times.")
    for job in alive:
        job.release()
    return RecoveryResult(len(alive), len(dead), restarted)


def process_name() -> str:
    """Return a unique name for this process, or an empty string if the kernel doesn't provide its parts.

    Process ids are ambiguous: other machines and containers use the same ids, and the kernel reuses them. So the name
    also contains the machine (`_machine`) and the start time. Workers can only check processes of their own machine.
    Jobs of other machines are taken over when their heartbeats stop.
    """
    return _name(os.getpid())


def has_ended(name: str) -> bool:
    """Return whether the process with this name ran on this machine and has ended."""
    machine, _, pid = name.rpartition(" ")[0].rpartition(" ")
    return bool(machine) and machine == _machine() and _name(int(pid)) != name


def _name(pid: int) -> str:
    """Return the machine, id and start time of a process. Blank if the process has ended."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    state, started = fields[0], fields[19]  # fields 3 and 22 of proc(5)
    return f"{_machine()} {pid} {started}" if _machine() and state not in _ENDED else ""


@cache
def _machine() -> str:
    """Return the hostname, boot id and PID namespace, or an empty string if they are unavailable."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()} {boot} {(_PROC / 'self/ns/pid').stat().st_ino}"
    except OSError:
        return ""
