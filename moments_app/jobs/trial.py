"""`try_prompt`: what a prompt would make of a session, beside what the version in force makes of the same turns.

The input is claimed as the process itself claims it, in a transaction that is taken back. Then the process's own
`think` runs for each text, at the same time, with no transaction and no connection held. Nothing is written but the
record of the engine's calls, which are paid like any other; their purpose says that they were tries.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import BoundedSemaphore
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from moments_app.engines import Caller
from moments_app.engines.base import CallRecord, EngineError
from moments_app.jobs.process import CannotRun, Skipped
from moments_app.jobs.runner import Process
from moments_app.models import EngineCall, Job, MemoryAtom, MemoryStream, Moment, PromptResource, PromptVersion, Summary
from moments_app.models.engine_call import TRIAL
from moments_app.moments import build as build_moments
from moments_app.sessions import digest as digest_session
from moments_app.streams import consolidate
from moments_app.streams import form as form_memories
from moments_app.summaries import roll as roll_summary
from sessions_app.models import Message, Session
from sessions_app.refusals import Refusal

Purpose = PromptResource.Purpose
# What a process did last waits again, in the transaction that is taken back; whether there was anything.
Rewind = Callable[[Job], bool]


AT_ONCE = 2  # trials in a process: each holds a thread that serves requests, for as long as the engine thinks
_running = BoundedSemaphore(AT_ONCE)


class CannotTry(Refusal):
    """There is nothing to try it on, nobody to ask, or no room; the message says which."""


@dataclass(frozen=True)
class Made:
    """What the engine made of the input with one text.

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
        """That the engine took."""
        return sum(call.latency_ms for call in self.calls) / 1000

    @property
    def tokens(self) -> int:
        """Given and answered, as far as the endpoint tells."""
        return sum((call.input_tokens or 0) + (call.output_tokens or 0) for call in self.calls)


@dataclass(frozen=True)
class Trial:
    """Both sides, the version in force first; one alone where there is no other, or the text is the same.

    Args:
        work: what the engine was given, as the process has it.
        is_again: nothing was waiting, so it is what the process did last, done again.
        made: one a text.
    """

    work: Any
    is_again: bool
    made: list[Made]


def try_prompt(version: PromptVersion, subject: Session | MemoryStream) -> Trial:
    """Has the engine work on what waits in a session, or else on what was done last, and writes nothing of it.

    Call it outside any transaction: it waits for the engine, for one call a text and one more to repair its answer.

    Args:
        version: the text, saved or not.
        subject: a session; for consolidations a stream.

    Raises:
        CannotTry: there is nothing to try it on, no process reads such a prompt, no model is asked for now, or as many
            trials as may are running.
    """
    if not can_be_tried(version.resource) or not settings.ENGINE.uses_model:
        raise CannotTry("No engine reads this prompt.")
    process, rewind = _TRIED[version.resource.purpose]
    job = _asked(process, subject)
    caller = process.caller(job)
    assert caller is not None  # each process that reads a prompt has one
    if pause := EngineCall.objects.pause_of(caller.name):
        raise CannotTry(pause.reason)
    work, is_again = _claimed(process, job, rewind)
    active = version.resource.active_version
    versions = [active, version] if active and active.content != version.content else [version]
    with _room(), ThreadPoolExecutor(len(versions)) as pool:
        connection.close()  # none is held while the engine thinks
        made = list(pool.map(lambda one: _made(process, caller, work.with_prompt(one)), versions))
    return Trial(work, is_again, made)


@contextmanager
def _room() -> Iterator[None]:
    if not _running.acquire(blocking=False):
        raise CannotTry(f"{AT_ONCE} trials are running already: wait until one has ended.")
    try:
        yield
    finally:
        _running.release()


def can_be_tried(resource: PromptResource) -> bool:
    """Whether a process reads such a prompt, so that it can be run without its commit."""
    return resource.purpose in _TRIED


def _asked(process: Process, subject: Session | MemoryStream) -> Job:
    """A job that is nowhere but here."""
    about = {"stream": subject} if isinstance(subject, MemoryStream) else {"session": subject}
    return Job(process=process.NAME, force=True, **about)


# --- claim, in a transaction that is taken back ---


def _claimed(process: Process, job: Job, rewind: Rewind) -> tuple[Any, bool]:
    """What the engine would be given, and whether that had been done already."""
    is_again = False
    try:
        with transaction.atomic():
            work = process.claim(job)
            if isinstance(work, Skipped) and rewind(job):
                work, is_again = process.claim(job), True
            transaction.set_rollback(True)
    except CannotRun as error:
        raise CannotTry(str(error)) from error
    if isinstance(work, Skipped):
        raise CannotTry(f"There is nothing to try it on: {work.reason}.")
    return (work.of_one_call() if isinstance(work, build_moments.Work) else work), is_again


def _before_last_build(job: Job) -> bool:
    session = _session(job)
    newest = Moment.objects.filter(source_session=session).order_by("-last_sequence").first()
    if newest is None:
        return False
    together = Moment.objects.filter(source_session=session, job=newest.job) if newest.job else [newest]
    session.last_moment_message_idx = min(moment.first_sequence for moment in together) - 1
    job.params = {build_moments.AGAIN: newest.last_sequence}
    return True


def _before_last_summary(job: Job) -> bool:
    latest = Summary.objects.latest_completed(_session(job))
    return bool(latest and Summary.objects.filter(pk=latest.pk).update(status=Summary.Status.FAILED))


def _before_last_formation(job: Job) -> bool:
    done = Job.objects.filter(session=job.session, process=form_memories.NAME, status=Job.Status.COMPLETED)
    if (last := done.order_by("-id").first()) is None:
        return False
    # What came of it would be shown to the engine as known already.
    MemoryAtom.objects.filter(job=last).update(state=MemoryAtom.State.EVICTED)
    job.params = {form_memories.AGAIN: [[last.result["first_sequence"], last.result["last_sequence"]]]}
    return True


def _before_last_boundary(job: Job) -> bool:
    session = _session(job)
    latest = list(Message.objects.boundaries_of(session)[:2])
    if not latest:
        return False
    latest[0].delete()
    session.live_from_sequence = latest[1].sequence + 1 if latest[1:] else 0
    return True


def _before_last_consolidation(job: Job) -> bool:
    assert job.stream is not None  # a consolidation is about a stream, always
    try:
        consolidate.undo(job.stream)
    except consolidate.CannotUndo:  # there is none, or the text was edited since
        return False
    job.stream.refresh_from_db()
    return True


def _session(job: Job) -> Session:
    assert job.session is not None  # all but consolidations are about one
    return job.session


_TRIED: dict[str, tuple[Process, Rewind]] = {
    Purpose.MOMENT_BUILDER: (build_moments, _before_last_build),
    Purpose.ROLLING_SUMMARY: (roll_summary, _before_last_summary),
    Purpose.MEMORY_EXTRACTION: (form_memories, _before_last_formation),
    Purpose.SESSION_DIGEST: (digest_session, _before_last_boundary),
    Purpose.STREAM_CONSOLIDATION: (consolidate, _before_last_consolidation),
}


# --- think ---


def _made(process: Process, caller: Caller, work: Any) -> Made:
    """What one text makes of it; in a thread of its own."""
    version: PromptVersion = work.prompt_version
    calls: list[CallRecord] = []

    def record(call: CallRecord) -> None:
        calls.append(call)
        tried = replace(call, purpose=f"{TRIAL}{call.purpose}")
        EngineCall.objects.keep(tried, prompt_version=version if version.pk else None)
        connection.close()

    try:
        answer = process.think(work, caller.open(record), lambda done, total: None)
    except EngineError as error:
        return Made(version, error=str(error), calls=calls)
    return Made(version, answer, calls=calls)
