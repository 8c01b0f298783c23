"""The pages of the queue's own tables."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone
from django_q.models import Failure, OrmQ, Schedule, Task
from django_q.tasks import async_task

from moments_app.models import Job
from moments_app.models.job import RUN_TASK
from sessions_app.models import UserProfile
from tests.support.operator import operator
from tests.support.pages import PLANTED, change_url, list_url, page
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_entry_leads_to_its_job(root: Client, ada: UserProfile) -> None:
    job = Job.objects.request("build_moments", talk(ada, 5), requested_by="test")
    async_task(RUN_TASK, str(job.job_id))  # as an older release did
    shown = page(root, list_url(OrmQ))
    assert f"{list_url(Job)}?q={job.job_id}" in shown
    assert str(job.job_id) in page(root, change_url(OrmQ.objects.get()))


def test_an_error_of_the_queue_is_shown_in_full_as_text(root: Client, transactional_db: None) -> None:
    now = timezone.now()
    lines = f"Traceback\n{PLANTED}\nValueError: no such thing"
    task = Task.objects.create(
        id="1" * 32, name="n", func="memoryproject.schedules.run_schedule", started=now, stopped=now
    )
    Task.objects.update(success=False, result=lines)
    assert "ValueError: no such thing" in page(root, list_url(Failure))
    shown = page(root, change_url(Failure.objects.get(pk=task.pk)))
    assert "Traceback" in shown and PLANTED not in shown


class TestSchedules:
    """What runs by itself."""

    @pytest.fixture
    def embed(self, transactional_db: None) -> Schedule:
        return Schedule.objects.get(name="embed")

    def act(self, client: Client, action: str, schedule: Schedule) -> int:
        client.post(list_url(Schedule), {"action": action, "_selected_action": [schedule.pk]})
        schedule.refresh_from_db()
        return int(schedule.repeats)

    def test_one_is_paused_and_let_run_again(self, root: Client, embed: Schedule) -> None:
        assert self.act(root, "pause", embed) == 0
        assert "paused" in page(root, list_url(Schedule))
        assert self.act(root, "resume", embed) == -1

    def test_it_says_what_each_does_and_which_is_overdue(self, root: Client, embed: Schedule) -> None:
        Schedule.objects.update(next_run=timezone.now() + timedelta(minutes=1))
        shown = page(root, list_url(Schedule))
        assert "Try again what failed to be embedded." in shown and "overdue" not in shown
        Schedule.objects.filter(pk=embed.pk).update(next_run=timezone.now() - timedelta(hours=1), func="gone.away")
        shown = page(root, list_url(Schedule))
        assert "overdue" in shown and "Its function no longer exists" in shown

    def test_row_18_what_runs_is_changed_by_nobody_and_a_viewer_pauses_nothing(
        self, root: Client, embed: Schedule
    ) -> None:
        data = {"name": "x", "func": "os.system", "schedule_type": "O", "repeats": "-1"}
        root.post(change_url(embed), data)
        assert root.post(f"{list_url(Schedule)}add/", data).status_code == 403
        assert self.act(operator("view_"), "pause", embed) == -1
        assert embed.func == "memoryproject.schedules.run_schedule"
        assert not Schedule.objects.filter(func="os.system").exists()
