"""`try_prompt`: what a prompt would make of a session, beside what the version in force makes of the same turns.

The input is claimed as the process itself claims it, in a transaction that is rolled back. Then the process's own
`think` runs for each text, at the same time, with no transaction and no connection held. Nothing is written but the
record of the engine's calls, which are paid like any other; their purpose says that they were tries.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import BoundedSemaphore
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from moments_app.engines import Caller
from moments_app.engines.interface import CallRecord, EngineError
from moments_app.jobs.process import AnyProcess, CannotRun, ProcessInput, Skipped, process_for_purpose
from moments_app.models import Circuit, EngineCall, Job, MemoryStream, PromptResource, PromptVersion
from moments_app.models.engine_call import TRIAL
from sessions_app.models import Session
from sessions_app.refusals import Refusal
from sessions_app.retention.archive_files import ArchiveError

AT_ONCE = 2  # trials in a process: each holds a thread that serves requests, for as long as the engine thinks
_running = BoundedSemaphore(AT_ONCE)


class CannotTry(Refusal):
    """There is nothing to try, no model is set, or too many trials are running. The message says which."""


@dataclass(frozen=True)
class TrialAnswer:
    """The engine's answer to the input with one text.

    Args:
        version: the text; not saved yet, it has no primary key.
        answer: what `think` returned; None when the engine failed.
        error: why it failed; else blank.
        calls: of the engine.
    """

    version: PromptVersion
    answer: Any = None
    error: str = ""
    calls: list[CallRecord] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Time that the engine took."""
        return sum(call.latency_ms for call in self.calls) / 1000

    @property
    def tokens(self) -> int:
        """Tokens given and answered, as far as the endpoint tells."""
        return sum((call.input_tokens or 0) + (call.output_tokens or 0) for call in self.calls)


@dataclass(frozen=True)
class Trial:
    """Both sides, the version in force first; one alone where there is no other, or the text is the same.

    Args:
        input: what the engine was given, as the process has it.
        is_again: nothing was waiting, so what the process did last was done again.
        answers: one a text.
        process: name of the process.
    """

    input: ProcessInput
    is_again: bool
    answers: list[TrialAnswer]
    process: str


def try_prompt(version: PromptVersion, subject: Session | MemoryStream) -> Trial:
    """Have the engine work on what waits in a session, or else on what was done last, and write nothing.

    Call this outside any transaction: it waits for the engine, for one call a text and one more to repair its answer.

    Args:
        version: the text, saved or not.
        subject: a session; for consolidations a stream.

    Raises:
        CannotTry: there is nothing to try it on, no process reads such a prompt, no model is asked for now, or as many
            trials as may are running.
    """
    process = process_for_purpose(version.resource.purpose)
    if process is None or not settings.ENGINE.uses_model:
        raise CannotTry("This prompt can't be tried, because no engine reads it.")
    job = _unsaved_job(process, subject)
    caller = process.caller(job)
    assert caller is not None  # each process that reads a prompt has one
    if reason := _why_not(caller):
        raise CannotTry(reason)
    input, is_again = _claimed(process, job)
    active = version.resource.active_version
    versions = [active, version] if active and active.content != version.content else [version]
    with room(), ThreadPoolExecutor(len(versions)) as pool:
        connection.close()  # none is held while the engine thinks
        answers = list(pool.map(lambda one: _answer(process, caller, input.with_prompt(one)), versions))
    return Trial(input, is_again, answers, process.name)


def _why_not(caller: Caller) -> str:
    """Return why the engine is not to be asked now; blank when it is."""
    circuit = Circuit.objects.open_of(caller)
    if circuit and circuit.holds_all:
        return circuit.why
    pause = EngineCall.objects.used_up()
    return pause.reason if pause else ""


@contextmanager
def room() -> Iterator[None]:
    """Hold one of the places for what keeps an operator waiting for a model.

    Raises:
        CannotTry: all are taken.
    """
    if not _running.acquire(blocking=False):
        raise CannotTry(f"{AT_ONCE} trials are already running, which is the limit. Wait until one has finished.")
    try:
        yield
    finally:
        _running.release()


def can_be_tried(resource: PromptResource) -> bool:
    """Tell whether a process reads such a prompt, so that it can be run without its commit."""
    return process_for_purpose(resource.purpose) is not None


def _unsaved_job(process: AnyProcess, subject: Session | MemoryStream) -> Job:
    about = {"stream": subject} if isinstance(subject, MemoryStream) else {"session": subject}
    return Job(process=process.name, force=True, **about)


# --- claim, in a transaction that is rolled back ---


def _claimed(process: AnyProcess, job: Job) -> tuple[Any, bool]:
    """Return what the engine would be given, and whether the process had done that already."""
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
    return input.of_one_call(), is_again


# --- think ---


def _answer(process: AnyProcess, caller: Caller, input: ProcessInput) -> TrialAnswer:
    """Call the engine with one text, in a thread of its own."""
    version = input.prompt_version
    assert version is not None  # each process that reads a prompt has one
    calls: list[CallRecord] = []

    def record(call: CallRecord) -> None:
        calls.append(call)
        tried = replace(call, purpose=f"{TRIAL}{call.purpose}")
        EngineCall.objects.keep(tried, prompt_version=version if version.pk else None)
        connection.close()

    try:
        answer = process.think(input, caller.open(record), lambda done, total: None)
    except EngineError as error:
        return TrialAnswer(version, error=str(error), calls=calls)
    return TrialAnswer(version, answer, calls=calls)
