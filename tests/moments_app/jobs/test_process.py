"""Adding a process takes one module, which all handling of jobs picks up."""

import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.apps import AppConfig, apps
from django.core import signing
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone
from django.utils.module_loading import autodiscover_modules
from django_q.models import Schedule

from memoryproject import schedules
from memoryproject.schedules import UnknownSchedule, register_schedules, run_schedule
from moments_app.jobs import process as jobs_process
from moments_app.jobs.process import Process, UnknownProcess, process_named, processes
from moments_app.jobs.runner import cancel, run_job
from moments_app.jobs.worker import recover_jobs
from moments_app.models import EngineCall, Job, PromptResource, PromptVersion
from moments_app.models.job import TASK
from sessions_app.models import Event, Session, UserProfile
from tests.support.commands import printed
from tests.support.extras import needs
from tests.support.jobs import queued_job_ids, work_off
from tests.support.openai_server import OpenAIServer
from tests.support.pages import change_url, list_url, page
from tests.support.tables import everything
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)

APP = "tests.support.greeting_app"


@pytest.fixture
def _greeting_app(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install an additional app with a module `processes` that the product doesn't know."""
    monkeypatch.setattr(jobs_process, "_registered", dict(jobs_process._registered))
    app = AppConfig.create(APP)
    monkeypatch.setitem(apps.app_configs, app.label, app)
    autodiscover_modules("processes")  # like `MomentsAppConfig.ready`
    yield
    sys.modules.pop(f"{APP}.processes")


@pytest.fixture
def prompt(_greeting_app: None, transactional_db: None) -> PromptResource:
    resource = PromptResource.objects.create(uri="rem://prompts/test/greeting", name="Greeting", purpose="greeting")
    resource.activate(resource.add_version("Welcome,", created_by="test"))
    return resource


@pytest.fixture
def session(ada: UserProfile) -> Session:
    """A session of Ada that needs a title."""
    return talk(ada, 4)


def asked(session: Session) -> Job:
    return Job.objects.request("greet", session, requested_by="test")


@pytest.mark.usefixtures("prompt")
class TestAProcessOfAnotherApp:
    """Only its module names the process."""

    def test_it_is_registered_requested_and_run(self, session: Session) -> None:
        assert "greet" in [process.name for process in processes()]
        job = asked(session)
        assert str(job.job_id) in queued_job_ids()
        work_off()
        session.refresh_from_db()
        job.refresh_from_db()
        assert (job.status, job.result, session.title) == ("completed", {"greeting": "Welcome, ada"}, "Welcome, ada")
        assert job.engine_calls.get().engine == "greeter"
        assert Event.objects.filter(type="session_greeted", session_pk=session.pk).exists()

    def test_it_is_listed_among_the_jobs(self, session: Session, root: Client) -> None:
        job, other = asked(session), Job.objects.request("build_moments", session, requested_by="test")
        shown = page(root, list_url(Job))
        assert change_url(job) in shown and "process=greet" in shown
        shown = page(root, list_url(Job), process="greet")
        assert change_url(job) in shown and change_url(other) not in shown
        assert "greet" in page(root, change_url(job))

    @needs("lab")
    @pytest.mark.parametrize("done_before", [False, True], ids=["waiting", "done"])
    def test_its_prompt_can_be_tried(
        self, session: Session, prompt: PromptResource, model_server: OpenAIServer, done_before: bool
    ) -> None:
        from memory_extras.lab.trials.try_prompt import try_prompt

        if done_before:
            run_job(asked(session).job_id)
            session.refresh_from_db()
        before = everything(but=["moments_app_enginecall"])
        trial = try_prompt(PromptVersion(resource=prompt, content="Hello,"), session)
        assert [one.answer for one in trial.answers] == ["Welcome, ada", "Hello, ada"]
        assert trial.is_again == done_before
        assert everything(but=["moments_app_enginecall"]) == before
        assert EngineCall.objects.filter(purpose="try greeting").count() == 2

    def test_it_is_recovered_after_its_worker_died(self, session: Session) -> None:
        job = asked(session)
        assert Job.objects.claim(job.job_id)
        Job.objects.filter(pk=job.pk).update(heartbeat_at=timezone.now() - timedelta(minutes=5))
        assert recover_jobs().requeued == 1
        work_off()
        job.refresh_from_db()
        assert (job.status, job.attempts) == ("completed", 2)

    def test_it_is_scheduled(self, session: Session, root: Client) -> None:
        register_schedules()
        row = Schedule.objects.get(name="greet")
        assert (row.func, row.args, row.minutes) == ("memoryproject.schedules.run_schedule", "('greet',)", 15)
        assert "Queue greetings for sessions without one." in page(root, list_url(Schedule))
        assert printed("run_schedule", "greet", dry_run=True) == "jobs: 1\n"
        assert not Job.objects.filter(process="greet").exists()
        run_schedule("greet")
        assert Job.objects.filter(process="greet").count() == 1


def test_its_schedule_is_removed_with_its_app(transactional_db: None) -> None:
    Schedule.objects.create(name="greet", func="memoryproject.schedules.run_schedule", args="('greet',)")
    register_schedules()
    assert not Schedule.objects.filter(name="greet").exists()


class TestNames:
    """The names of processes are unique."""

    def test_two_processes_cannot_share_a_name(self) -> None:
        with pytest.raises(ImproperlyConfigured, match=r"'embed': moments_app.*Embed and .*Another"):

            class Another(Process[Any, Any]):
                name = "embed"

        assert process_named("embed").__class__.__module__ == "moments_app.recall.embed"

    def test_base_classes_are_not_registered(self) -> None:
        core = {process.name for process in processes() if type(process).__module__.startswith("moments_app.")}
        assert core == {
            "build_moments",
            "consolidate",
            "count_words",
            "digest_session",
            "embed",
            "embed_all",
            "form_memories",
            "index_archived",
            "rebuild_moments",
            "roll_summary",
            "run_task",
            "settle",
        }

    def test_the_error_for_an_unknown_process_names_it(self) -> None:
        with pytest.raises(UnknownProcess, match="no process named 'greet'"):
            process_named("greet")
        with pytest.raises(UnknownSchedule, match=r"no schedule greet\. Choose one of compact_sessions, count_words"):
            run_schedule("greet")
        with pytest.raises(CommandError, match="no schedule greet"):
            call_command("run_schedule", "greet")

    def test_a_job_of_another_release_waits_for_a_worker_with_its_process(self, session: Session) -> None:
        job = run_job(asked(session).job_id)
        assert job is not None
        assert (job.status, job.attempts) == ("queued", 1)
        assert job.run_after > timezone.now() and "no process named 'greet'" in job.error
        cancel(job, actor="operator:eve")
        job.refresh_from_db()
        assert job.is_cancelled


@pytest.mark.slow
def test_migrate_replaces_the_schedules_of_an_older_release(transactional_db: None) -> None:
    Schedule.objects.create(func=schedules.RUN_TASK, name="share_alike", args="('share_alike',)")
    Job.objects.request_task("share_alike", schedules.RUN_TASK, "share_alike", requested_by="schedule")
    Schedule.objects.filter(name="form_memories").update(func="moments_app.tasks.form_memories", args=None)
    call_command("migrate", verbosity=0)
    assert not Job.objects.filter(process=TASK).exists()
    assert not Schedule.objects.filter(name="share_alike").exists()
    row = Schedule.objects.get(name="form_memories")
    assert (row.func, row.args) == ("memoryproject.schedules.run_schedule", "('form_memories',)")


def test_an_unsigned_call_is_not_run(transactional_db: None, tmp_path: Path) -> None:
    call = ["os.mkdir", [str(tmp_path / "made")], {}]
    for number, params in enumerate(({"call": signing.dumps(call, key="another", salt=TASK)}, {"call": call})):
        job = Job.objects.create(process=TASK, task=f"mkdir {number}", params=params, requested_by="test")
        run_job(job.job_id)
    assert not (tmp_path / "made").exists()
