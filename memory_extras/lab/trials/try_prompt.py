"""`try_prompt`: run an engine with a prompt on a session, and with the active version on the same turns.

The process claims its input in a transaction that is rolled back. Then its `think` runs for each text in parallel,
without a transaction or a connection. Only the engine calls are recorded, because they cost money like any other. Their
purpose marks them as trials.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from threading import BoundedSemaphore
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from moments_app.engines import EngineFactory
from moments_app.engines.interface import CallRecord, EngineError
from moments_app.jobs.process import AnyProcess, CannotRun, ProcessInput, Skipped, process_for_purpose
from moments_app.models import Circuit, EngineCall, Job, MemoryStream, PromptResource, PromptVersion
from moments_app.models.engine_call import TRIAL
from sessions_app.models import Session
from sessions_app.refusals import Refusal
from sessions_app.retention.archive_files import ArchiveError

MAX_RUNNING = 2  # maximum number of trials per process, because each blocks a thread that serves requests
_running = BoundedSemaphore(MAX_RUNNING)


class CannotTry(Refusal):
    """There is nothing to try, no model is configured, or too many trials are running. The message says which."""


@dataclass(frozen=True)
class TrialAnswer:
    """The engine's result with one text, or why it failed. An unsaved version has no primary key.

    Args:
        answer: The return value of `think`.
    """

    version: PromptVersion
    answer: Any = None
    error: str = ""
    calls: list[CallRecord] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return sum(call.latency_ms for call in self.calls) / 1000

    @property
    def tokens(self) -> int:
        """The number of input and output tokens, as far as the endpoint reports them."""
        return sum((call.input_tokens or 0) + (call.output_tokens or 0) for call in self.calls)


@dataclass(frozen=True)
class Trial:
    """The results of both versions, the active one first.

    There is only one result if no version is active, or if both have the same text.

    Args:
        is_again: Whether the process had no new input, so its last run was repeated.
    """

    input: ProcessInput
    is_again: bool
    answers: list[TrialAnswer]
    process: str


def try_prompt(version: PromptVersion, subject: Session | MemoryStream) -> Trial:
    """Run the engine on the waiting turns of a session, or else on those of the last run. Writes nothing.

    Call this outside any transaction, because it waits for the engine. Each text takes one call, or two if its result
    must be repaired.

    Args:
        version: The text, saved or not.
        subject: A session, or a stream for consolidations.

    Raises:
        CannotTry: The message says why.
    """
    process = process_for_purpose(version.resource.purpose)
    if process is None or not settings.ENGINE.uses_model:
        raise CannotTry("This prompt can't be tried, because no engine reads it.")
    job = _unsaved_job(process, subject)
    factory = process.engine_factory(job)
    assert factory is not None  # each process that reads a prompt has one
    if reason := _why_not(factory):
        raise CannotTry(reason)
    input, is_again = _claimed(process, job)
    active = version.resource.active_version
    versions = [active, version] if active and active.content != version.content else [version]
    with trial_slot(), ThreadPoolExecutor(len(versions)) as pool:
        connection.close()  # hold no connection while the engine runs
        # In the context of the request, which has its role, its timeouts, and the limits that its calls count toward.
        runs = [pool.submit(copy_context().run, _answer, process, factory, input.with_prompt(one)) for one in versions]
        answers = [run.result() for run in runs]
    return Trial(input, is_again, answers, process.name)


def _why_not(factory: EngineFactory) -> str:
    """Return why the engine can't be called now, or a blank string."""
    circuit = Circuit.objects.open_for(factory)
    if circuit and circuit.holds_all:
        return circuit.why
    pause = EngineCall.objects.reached_limit()
    return pause.reason if pause else ""


@contextmanager
def trial_slot() -> Iterator[None]:
    """Reserve one of the slots for requests that wait for a model, or raise `CannotTry`."""
    if not _running.acquire(blocking=False):
        raise CannotTry(f"{MAX_RUNNING} trials are already running, which is the limit. Wait until one has finished.")
    try:
        yield
    finally:
        _running.release()


def can_be_tried(resource: PromptResource) -> bool:
    """Return whether a process uses the prompt. Each such process can run without saving its result."""
    return process_for_purpose(resource.purpose) is not None


def _unsaved_job(process: AnyProcess, subject: Session | MemoryStream) -> Job:
    about = {"stream": subject} if isinstance(subject, MemoryStream) else {"session": subject}
    return Job(process=process.name, force=True, **about)


# --- claim, in a transaction that is rolled back ---


def _claimed(process: AnyProcess, job: Job) -> tuple[Any, bool]:
    """Return the engine's input, and whether the process had already processed this input."""
    is_again = False
    try:
        with transaction.atomic():
            input = process.claim(job)
            if isinstance(input, Skipped) and process.rewind(job):
                input, is_again = process.claim(job), True
            transaction.set_rollback(True)
    except (CannotRun, ArchiveError) as error:
        raise CannotTry(str(error)) from error
    if isinstance(input, Skipped):
        raise CannotTry(f"There is nothing to try it on: {input.reason}.")
    return input.for_first_call(), is_again


# --- think ---


def _answer(process: AnyProcess, factory: EngineFactory, input: ProcessInput) -> TrialAnswer:
    version = input.prompt_version
    assert version is not None  # the input was created with a prompt version
    calls: list[CallRecord] = []

    def record(call: CallRecord) -> None:
        calls.append(call)
        tried = replace(call, purpose=f"{TRIAL}{call.purpose}")
        EngineCall.objects.record(tried, prompt_version=version if version.pk else None)
        connection.close()

    try:
        answer = process.think(input, factory.open(record), lambda done, total: None)
    except EngineError as error:
        return TrialAnswer(version, error=str(error), calls=calls)
    return TrialAnswer(version, answer, calls=calls)
