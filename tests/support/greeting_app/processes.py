"""Everything that is necessary to add a process: this module, in an installed app."""

from collections.abc import Callable
from dataclasses import dataclass

from moments_app.engines import EngineFactory
from moments_app.engines.interface import CallRecord
from moments_app.jobs.process import (
    Process,
    ProcessInput,
    Progress,
    QueuedJobs,
    Skipped,
    Timing,
    active_prompt,
    complete,
    locked_session,
    session_of,
)
from moments_app.models import Job, PromptVersion
from sessions_app.models import Session

GREETING_URI = "rem://prompts/test/greeting"


@dataclass(frozen=True)
class GreetInput(ProcessInput):
    """The session to greet."""

    prompt_version: PromptVersion
    session: Session


@dataclass(frozen=True)
class Greeter:
    """The process's own engine."""

    record: Callable[[CallRecord], None]

    def greet(self, prompt: str, name: str) -> str:
        """Return a greeting."""
        self.record(CallRecord("greeting", "greeter", 1))
        return f"{prompt} {name}"


class Greet(Process[GreetInput, str]):
    """Gives a session its title."""

    name = "greet"
    prompt_purpose = "greeting"
    sweep_timing = Timing(minutes=15)

    def engine_factory(self, job: Job) -> EngineFactory:
        return EngineFactory("greeter", Greeter)

    def claim(self, job: Job) -> GreetInput | Skipped:
        session = session_of(job)
        if session.title:
            return Skipped("greeted already")
        return GreetInput(active_prompt(GREETING_URI, session), session)

    def think(self, input: GreetInput, engine: Greeter, progress: Progress) -> str:
        return engine.greet(input.prompt_version.content, input.session.user.user_id)

    def commit(self, job: Job, input: GreetInput, answer: str) -> None:
        session = locked_session(job)
        session.title = answer
        session.save(update_fields=["title"])
        complete(job, "session_greeted", {"greeting": answer})

    def rewind(self, job: Job) -> bool:
        session = session_of(job)
        was_greeted, session.title = bool(session.title), ""
        return was_greeted

    def sweep(self, *, dry_run: bool = False) -> QueuedJobs:
        """Queue greetings for sessions without one."""
        waiting = list(Session.objects.filter(title=""))
        for session in () if dry_run else waiting:
            Job.objects.request(self.name, session, requested_by=self.name)
        return QueuedJobs(len(waiting))
