"""The base class of everything that is run as a job, and the registry that knows each by its name.

To add a process is to write one subclass of `Process` in a module that is imported when the site starts: an app's
module `processes` is (see `MomentsAppConfig.ready`). Defining the class registers it. The runner, recovery, trials,
estimates, housekeeping and schedules know processes through the registry alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from enum import IntEnum
from typing import Any, ClassVar, Generic, Self, TypeVar

from django.core.exceptions import ImproperlyConfigured

from moments_app.engines import Caller
from moments_app.jobs.workload import Workload
from moments_app.models import Circuit, Job, MemoryStream, PromptResource, PromptVersion
from moments_app.models.job import TITLES, JobQuerySet
from sessions_app.models import Event, Message, Session
from sessions_app.refusals import Refusal

Progress = Callable[[int, int], None]  # steps done, steps in all


# --- outcomes that are no commit ---


@dataclass(frozen=True)
class Skipped:
    """The outcome of a claim that found nothing to do."""

    reason: str


class CannotRun(Refusal):
    """The job can't be done as things are set up; another try would not help. The message says what to mend."""


class Moved(Exception):
    """The input has changed since the claim: the work is to be done again with what is there now."""


class Waits(Exception):
    """The work can't go on before something else is done; the attempt doesn't count.

    Args:
        until: when to look again.
        reason: what is waited for.
        circuit: that holds what is waited for.
        held_by: what is waited for, where it is no circuit.
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
    """The job was taken over or cancelled, or its subject is gone: this run writes nothing."""


class UnknownProcess(Exception):
    """No process of this release has the name; the message says which."""


# --- the base class ---


@dataclass(frozen=True)
class ProcessInput:
    """The input of a run, as a claim reads it; each process has a subclass of its own.

    Args:
        prompt_version: the instructions that the engine follows; None where there is no prompt.
    """

    prompt_version: PromptVersion | None

    def with_prompt(self, version: PromptVersion) -> Self:
        """Return the same input with other instructions."""
        return replace(self, prompt_version=version)

    def prompt_for(self, purpose: str) -> PromptVersion | None:
        """Return the instructions that a call for a purpose follows."""
        return self.prompt_version

    def of_one_call(self) -> Self:
        """Return the input cut to what the first call of an engine gets."""
        return self


@dataclass(frozen=True)
class Timing:
    """The times of a sweep: every so many minutes, or daily at a time of day, UTC."""

    minutes: int | None = None
    daily_at: time | None = None

    @property
    def interval(self) -> timedelta:
        """The time between two runs."""
        return timedelta(days=1) if self.daily_at else timedelta(minutes=self.minutes or 0)

    def __str__(self) -> str:
        return f"every {self.minutes} min" if self.daily_at is None else f"daily at {self.daily_at:%H:%M} UTC"


@dataclass(frozen=True)
class Asked:
    """The number of jobs that a sweep asked for, or would ask for."""

    jobs: int

    def __str__(self) -> str:
        return f"asked for: {self.jobs}"


class Lane(IntEnum):
    """How urgent jobs are: workers of a lane help the more urgent ones, and never the other way round."""

    SCHEDULED = 0  # schedules, and function calls
    WAITED = 1  # somebody waits for it: summaries, digests
    BUILD = 2  # memory of what was said
    INDEX = 3  # what makes memory found
    BULK = 4  # much at a time, and nobody waits for it

    @property
    def title(self) -> str:
        """The jobs of the lane, as pages show it."""
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
    """A verb that is run as a job: claim, think, commit. Instances keep no state.

    A subclass with a `name` is registered; one without is a base for others.

    Attributes:
        name: kept in the rows of its jobs; never changed once there are some.
        title: what it does, as pages show it.
        makes: what memory lacks while its jobs don't run, in an operator's words.
        prompt_purpose: purpose of the prompts that can be tried with this process; blank for none.
        lane: that its jobs wait in.
        is_upkeep: a completed job leads nowhere, and its row is deleted once it is old.
        sweep_timing: when `sweep` runs by itself, on the schedule named as the process; None for never.
    """

    name: ClassVar[str]
    title: ClassVar[str] = ""
    makes: ClassVar[str] = ""
    prompt_purpose: ClassVar[str] = ""
    is_upkeep: ClassVar[bool] = False
    lane: ClassVar[Lane] = Lane.BUILD
    sweep_timing: ClassVar[Timing | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in vars(cls):
            _register(cls)

    def caller(self, job: Job) -> Caller | None:
        """Return who is called to answer; None when nobody is."""
        return None

    def alike(self, job: Job) -> JobQuerySet:
        """Return this process's jobs that call the same engine as this one: all, where settings alone choose it."""
        return Job.objects.filter(process=self.name)

    def prepare(self, job: Job, progress: Progress) -> Skipped | None:
        """Do what has to be done before the claim, outside any transaction; `Skipped` when the claim is not wanted."""
        return None

    @abstractmethod
    def claim(self, job: Job) -> Input | Skipped:
        """Read the input, inside a transaction; `Skipped` when there is nothing to do.

        Raises:
            CannotRun: when the job can't be done as things are set up.
        """

    @abstractmethod
    def think(self, input: Input, engine: Any, progress: Progress) -> Answer:
        """Call the engine, outside any transaction and with no connection held. Reads and writes no row.

        Args:
            input: as claimed.
            engine: opened from `caller`; None when nobody is called.
            progress: is told of steps done and steps in all.

        Raises:
            EngineError: when the engine gave no valid answer.
        """

    @abstractmethod
    def commit(self, job: Job, input: Input, answer: Answer) -> None:
        """Write everything and complete the job, inside a transaction.

        Raises:
            ClaimLost: the job was taken over or cancelled, or its subject is gone.
            Moved: what the claim read has changed since.
        """

    def is_due_after(self, session: Session, messages: Sequence[Message]) -> bool:
        """Tell whether messages that were appended to a session make a run due; it is asked with each append."""
        return False

    def after_append(self, appended: Sequence[tuple[Session, Sequence[Message]]]) -> Sequence[Job]:
        """Ask for the runs that messages made due, in the transaction of the append: no query when nothing is due.

        Args:
            appended: sessions, each with the messages that were added to it.
        """
        due = {session: None for session, messages in appended if self.is_due_after(session, messages)}
        return Job.objects.request_each(self.name, list(due), requested_by="append")

    def failed(self, job: Job, error: str) -> None:
        """Give up what was begun when an attempt came to nothing, before the job is put back or failed."""

    def recover(self) -> int:
        """Begin again what was begun and has no job; return how often."""
        return 0

    def rewind(self, job: Job) -> bool:
        """Make what was done last wait again, in a transaction that is rolled back; False when there is nothing."""
        return False

    def workload(self, *, everything: bool) -> Workload | None:
        """Return what sessions would take, as aggregates over them; None when the process is not estimated.

        Args:
            everything: as if nothing had been made yet; else only what waits.
        """
        return None

    def sweep(self, *, dry_run: bool = False) -> object:
        """Find what is due and ask for it; the text of what is returned says what was done.

        Args:
            dry_run: only count.
        """
        raise NotImplementedError(f"{self.name} has a timing and no sweep.")


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


def processes() -> list[AnyProcess]:
    """Return all processes, by name."""
    return [_registered[name]() for name in sorted(_registered)]


def names_in(lane: Lane) -> list[str]:
    """Return the names of the processes of a lane."""
    return [process.name for process in processes() if process.lane == lane]


def process_named(name: str) -> AnyProcess:
    """Return the process with a name.

    Raises:
        UnknownProcess: there is none.
    """
    try:
        return _registered[name]()
    except KeyError:
        raise UnknownProcess(f"This release has no process named {name!r}.") from None


def process_for_purpose(purpose: str) -> AnyProcess | None:
    """Return the process that prompts of a purpose can be tried with."""
    return next((process for process in processes() if purpose and process.prompt_purpose == purpose), None)


# --- what claims and commits share ---


def session_of(job: Job) -> Session:
    """Return the session of a job whose process is about one, always."""
    assert job.session is not None
    return job.session


def stream_of(job: Job) -> MemoryStream:
    """Return the stream of a job whose process is about one, always."""
    assert job.stream is not None
    return job.stream


def prompt_in_force(uri: str, subject: Session | MemoryStream) -> PromptVersion:
    """Return the active version of a prompt resource, for the application that a session or a stream belongs to.

    Raises:
        CannotRun: there is none; names the URI.
    """
    try:
        return PromptResource.objects.version_in_force(uri, subject.application_pk)
    except PromptResource.DoesNotExist as error:
        raise CannotRun(str(error)) from error


def no_progress(_done: int, _total: int) -> None:
    """Ignore the progress of a part of a run."""


def locked_session(job: Job) -> Session:
    """Return the session of a job, locked for the commit.

    Raises:
        ClaimLost: the job was taken over, or the session is gone.
        Moved: turns of the session were retracted, or are believed again, since the claim.
    """
    claimed = session_of(job)
    session = Session.objects.locked().filter(pk=claimed.pk).first()
    if session is None or not job.is_claimed():
        raise ClaimLost
    if session.retraction_count != claimed.retraction_count:
        raise Moved("Turns were retracted while the engine was thinking.")
    return session


def complete(job: Job, event: str, result: dict[str, Any]) -> None:
    """End a job that did its work, and say so in the event log."""
    job.complete(result)
    Event.objects.create(
        type=event, actor=f"job:{job.job_id}", user_pk=job.user_id, session_pk=job.session_id, payload=result
    )
