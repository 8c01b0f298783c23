"""The base class of processes, and their registry.

To add a process, write a subclass of `Process` in a module that is imported at startup, such as the `processes` module
of an app. Defining the class registers it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from enum import IntEnum
from typing import Any, ClassVar, Generic, Self, TypeVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Count, F, FloatField, Max
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast
from django.dispatch import receiver

from moments_app.engines import EngineFactory
from moments_app.models import Circuit, Correction, Job, MemoryStream, PromptResource, PromptVersion
from moments_app.models.job import TITLES, DueRun, JobQuerySet
from moments_app.turns.platform_text import note_platform_text
from sessions_app.models import Event, Message, Session, UserProfile
from sessions_app.refusals import Refusal
from sessions_app.transcript.append import messages_appended

Progress = Callable[[int, int], None]  # finished steps, total steps
CorrectionState = dict[str, int | datetime | None]


# --- outcomes other than a commit ---


@dataclass(frozen=True)
class Skipped:
    """The result of `prepare` or `claim` if there is nothing to do."""

    reason: str


class CannotRun(Refusal):
    """The job can't run with the current configuration, and a retry would not help. The message says what to fix."""


class InputChanged(Exception):
    """The input has changed since the claim. The job runs again with the current data."""


class PostponeJob(Exception):
    """The job must wait until a time, or for a circuit. The attempt doesn't count.

    Args:
        held_by: the kind of wait, if `circuit` is None.
    """

    def __init__(
        self,
        until: datetime,
        reason: str,
        circuit: Circuit | None = None,
        held_by: Job.Held = Job.Held.STEP,
    ) -> None:
        super().__init__(reason)
        self.until = until
        self.circuit = circuit
        self.held_by = held_by


class ClaimLost(Exception):
    """The job was taken over or canceled, or its subject was deleted. This run writes nothing."""


class UnknownProcess(Exception):
    pass


# --- the estimated work of sessions ---


@dataclass(frozen=True)
class Workload:
    """The work that a process still has to do for sessions. `calls` and `tokens` are SQL aggregates over sessions."""

    engine: str
    calls: Combinable
    tokens: Combinable  # tokens of the turns that the calls receive
    usual_answer: int  # tokens assumed for each answer, until enough calls are recorded
    prompt_tokens: int  # tokens that each call receives in addition to turns
    purpose: str = ""  # the purpose of the calls, if the process has no prompt


def settling_is_one_call() -> bool:
    """Return whether settling sends all due work of a session in one call. This call has its own estimate."""
    return settings.ENGINE.uses_model and settings.ENGINE.combines_calls


def tokens_of(turns: Combinable) -> Combinable:
    """Return the estimated tokens of turns, from the session's average."""
    return Cast(F("total_tokens"), FloatField()) / F("message_count") * turns


def turns_to_estimate(waiting: F | Combinable, *, everything: bool) -> Combinable:
    """Return the number of a session's turns to include in an estimate: all turns, or only the waiting ones."""
    return F("message_count") if everything else waiting


# --- the base class ---


@dataclass(frozen=True)
class ProcessInput:
    """The input of a run, as returned by `Process.claim`. Each process has its own subclass."""

    prompt_version: PromptVersion | None  # None if the process has no prompt

    def with_prompt(self, version: PromptVersion) -> Self:
        return replace(self, prompt_version=version)

    def prompt_for(self, purpose: str) -> PromptVersion | None:
        return self.prompt_version

    def for_first_call(self) -> Self:
        """Return the part of this input that the first call to the engine receives."""
        return self


@dataclass(frozen=True)
class Timing:
    """When a sweep runs: every N minutes, or daily at a time in UTC."""

    minutes: int | None = None
    daily_at: time | None = None

    @property
    def interval(self) -> timedelta:
        return timedelta(days=1) if self.daily_at else timedelta(minutes=self.minutes or 0)

    def __str__(self) -> str:
        return f"every {self.minutes} min" if self.daily_at is None else f"daily at {self.daily_at:%H:%M} UTC"


@dataclass(frozen=True)
class QueuedJobs:
    jobs: int  # with `dry_run`, the number of jobs that would be queued

    def __str__(self) -> str:
        return f"jobs: {self.jobs}"


class Lane(IntEnum):
    """The urgency of jobs, most urgent first."""

    SCHEDULED = 0  # tasks: calls of a function, once or on a schedule
    WAITED = 1  # a user waits for it: summaries, digests
    BUILD = 2  # builds memory from messages
    INDEX = 3  # makes memory searchable
    BULK = 4  # large amounts of work that no user waits for

    @property
    def title(self) -> str:
        return LANE_TITLES[self]


LANE_TITLES = {
    Lane.SCHEDULED: "Schedules",
    Lane.WAITED: "Summaries",
    Lane.BUILD: "Moments and facts",
    Lane.INDEX: "Search index",
    Lane.BULK: "Bulk work",
}


Input = TypeVar("Input", bound=ProcessInput)
Answer = TypeVar("Answer")


class Process(ABC, Generic[Input, Answer]):
    """A kind of job, in three steps: claim, think, commit. Instances have no state.

    A subclass with a `name` is registered. A subclass without one is a base for others.
    """

    name: ClassVar[str]  # stored with each job; don't change it once there are jobs
    title: ClassVar[str] = ""  # shown in the admin
    output: ClassVar[str] = ""  # what is missing while the process doesn't run, such as `rebuilt moments`
    prompt_purpose: ClassVar[str] = ""  # purpose of the prompts that operators can try with it; blank if there are none
    is_upkeep: ClassVar[bool] = False  # whether housekeeping deletes completed jobs
    lane: ClassVar[Lane] = Lane.BUILD
    sweep_timing: ClassVar[Timing | None] = None  # when the schedule named after the process calls `sweep`

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in vars(cls):
            _register(cls)

    def engine_factory(self, job: Job) -> EngineFactory | None:
        """Return the engine or embedder that the job calls, or None."""
        return None

    def jobs_of_same_engine(self, job: Job) -> JobQuerySet:
        """Return the jobs of this process that need the same engine as this job."""
        return Job.objects.filter(process=self.name)

    def prepare(self, job: Job, progress: Progress) -> Skipped | None:
        """Do work before the claim, outside any transaction. Return `Skipped` to skip the claim."""
        return None

    @abstractmethod
    def claim(self, job: Job) -> Input | Skipped:
        """Read the input, inside a transaction. Return `Skipped` if there is nothing to do. May raise `CannotRun`."""

    @abstractmethod
    def think(self, input: Input, engine: Any, progress: Progress) -> Answer:
        """Call the engine.

        Don't read or write rows, because there is no transaction and no connection. May raise `EngineError`.

        Args:
            engine: the opened engine; None if `engine_factory` returns None.
            progress: a function to call with the numbers of finished steps and of all steps.
        """

    @abstractmethod
    def commit(self, job: Job, input: Input, answer: Answer) -> None:
        """Write everything and complete the job, inside a transaction. May raise `ClaimLost` and `InputChanged`."""

    def is_due_after(self, session: Session, messages: Sequence[Message]) -> bool:
        """Return whether a session's appended messages make a run due. Called for each append."""
        return False

    def due_runs(self, appended: Sequence[tuple[Session, Sequence[Message]]]) -> list[DueRun]:
        """Return the runs that new messages trigger. Called in the append's transaction."""
        due = {session: None for session, messages in appended if self.is_due_after(session, messages)}
        return [DueRun(self.name, session) for session in due]

    def failed(self, job: Job, error: str) -> None:
        """Undo what a failed attempt has started. Called before the job is queued again or marked as failed."""

    def recover(self) -> int:
        """Restart work that was started but has no job. Return the number of restarts."""
        return 0

    def rewind(self, job: Job) -> bool:
        """Undo the latest run, so that a trial can repeat it. Return False if there was no run."""
        return False

    def workload(self, *, everything: bool) -> Workload | None:
        """Return the estimated work of sessions: all work, or only the waiting work.

        Return None if there is no estimate.
        """
        return None

    def sweep(self, *, dry_run: bool = False) -> object:
        """Find due work and queue it. Return an object whose `str()` describes the result for the operator."""
        raise NotImplementedError(f"{self.name} has a `sweep_timing` but no `sweep`.")


AnyProcess = Process[Any, Any]


# --- the registry ---

_registered: dict[str, type[AnyProcess]] = {}


def _register(process: type[AnyProcess]) -> None:
    other = _registered.setdefault(process.name, process)
    if other is not process:
        paths = " and ".join(f"{each.__module__}.{each.__qualname__}" for each in (other, process))
        raise ImproperlyConfigured(f"Two processes are named {process.name!r}: {paths}.")
    if process.title:
        TITLES[process.name] = process.title
        if process.prompt_purpose:
            TITLES[process.prompt_purpose] = process.title


def processes() -> list[AnyProcess]:
    return [_registered[name]() for name in sorted(_registered)]


@receiver(messages_appended)
def request_due_work(appended: Sequence[tuple[Session, Sequence[Message]]], **_: Any) -> Sequence[Job]:
    """Queue the jobs that these messages make due, and return them. Run no query if nothing is due."""
    for session, messages in appended:  # first, because the jobs ignore platform text
        note_platform_text(session, messages)
    due = [run for process in processes() for run in process.due_runs(appended)]
    return Job.objects.request_many(due, requested_by="append")


def names_in(lane: Lane) -> list[str]:
    return [process.name for process in processes() if process.lane == lane]


def process_named(name: str) -> AnyProcess:
    """Return the process with this name, or raise `UnknownProcess`."""
    try:
        return _registered[name]()
    except KeyError:
        raise UnknownProcess(f"This release has no process named {name!r}.") from None


def process_for_purpose(purpose: str) -> AnyProcess | None:
    """Return the process with which operators can try prompts of this purpose, or None."""
    return next((process for process in processes() if purpose and process.prompt_purpose == purpose), None)


# --- shared by claims and commits ---


def session_of(job: Job) -> Session:
    assert job.session is not None
    return job.session


def stream_of(job: Job) -> MemoryStream:
    assert job.stream is not None
    return job.stream


def active_prompt(uri: str, subject: Session | MemoryStream) -> PromptVersion:
    """Return the active version of a prompt for the subject's application, or raise `CannotRun`."""
    try:
        return PromptResource.objects.version_in_force(uri, subject.application_pk)
    except PromptResource.DoesNotExist as error:
        raise CannotRun(str(error)) from error


def no_progress(_done: int, _total: int) -> None:
    pass


def locked_session(job: Job) -> Session:
    """Lock the job's session for the commit. May raise `ClaimLost` and `InputChanged`."""
    claimed = session_of(job)
    session = Session.objects.locked().filter(pk=claimed.pk).first()
    if session is None or not job.is_claimed():
        raise ClaimLost
    if session.retraction_count != claimed.retraction_count:
        raise InputChanged("Turns were retracted while the engine was working.")
    return session


def correction_state(user: UserProfile) -> CorrectionState:
    """Return a value that changes whenever a correction is made, undone, withdrawn or restored."""
    return Correction.objects.for_user(user).aggregate(count=Count("pk"), latest=Max("pk"), undone=Max("undone_at"))


def check_corrections(user_id: int, corrections: CorrectionState) -> None:
    """Lock a person to prevent concurrent corrections. Raise `InputChanged` if there were any since the claim."""
    user = UserProfile.objects.locked().get(pk=user_id)
    if correction_state(user) != corrections:
        raise InputChanged("Facts were corrected while the engine was working.")


def complete(job: Job, event: str, result: dict[str, Any]) -> None:
    job.complete(result)
    Event.objects.create(
        type=event, actor=f"job:{job.job_id}", user_pk=job.user_id, session_pk=job.session_id, payload=result
    )


def queue_embedding(requested_by: str, *, session: Session | None = None, **about: Any) -> Job | None:
    """Queue the embedding of new texts if embeddings are enabled.

    If a job is already open, it also embeds the texts of this transaction.

    Args:
        session: the session whose turns to embed. The caller must have locked it.
        about: what to embed without a session, either a `user_id` (a person's facts, moments and items) or a `stream`
            (a shard's facts).
    """
    if not settings.EMBEDDING.is_on:
        return None
    return Job.objects.request("embed", session, requested_by=requested_by, stays_open=session is None, **about)
