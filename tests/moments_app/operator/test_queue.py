"""The page of schedules."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone
from django_q.models import Schedule

from memoryproject.schedules import RUN_TASK, schedules
from moments_app.jobs.process import Process
from moments_app.models import Job
from tests.support.operator import operator
from tests.support.pages import change_url, list_url, page

pytestmark = pytest.mark.django_db(transaction=True)


class TestSchedules:
    """Scheduled tasks."""

    @pytest.fixture
    def embed(self, transactional_db: None) -> Schedule:
        return Schedule.objects.get(name="embed")

    def act(self, client: Client, action: str, schedule: Schedule) -> int:
        client.post(list_url(Schedule), {"action": action, "_selected_action": [schedule.pk]})
        schedule.refresh_from_db()
        return int(schedule.repeats)

    def test_a_schedule_is_paused_and_resumed(self, root: Client, embed: Schedule) -> None:
        assert self.act(root, "pause", embed) == 0
        assert "paused" in page(root, list_url(Schedule))
        assert self.act(root, "resume", embed) == -1

    def test_each_schedule_is_described_and_overdue_ones_are_marked(self, root: Client, embed: Schedule) -> None:
        inherited = (Process.sweep.__doc__ or "").splitlines()[0]
        assert not {name for name, schedule in schedules().items() if schedule.does in ("", inherited)}
        job = Job.objects.request_task("embed", RUN_TASK, "embed", requested_by="schedule")
        shown = page(root, list_url(Schedule))
        assert (
            "Restart failed embedding jobs, and resend rejected texts that are due."
        ) in shown and "overdue" not in shown
        Job.objects.filter(pk=job.pk).update(queued_at=timezone.now() - timedelta(minutes=31))
        Schedule.objects.filter(pk=embed.pk).update(func="gone.away")
        shown = page(root, list_url(Schedule))
        assert "overdue" in shown and "The function of this schedule no longer exists" in shown

    def test_row_18_the_function_of_a_schedule_cannot_be_changed_and_a_viewer_cannot_pause_it(
        self, root: Client, embed: Schedule
    ) -> None:
        data = {"name": "x", "func": "os.system", "schedule_type": "O", "repeats": "-1"}
        root.post(change_url(embed), data)
        assert root.post(f"{list_url(Schedule)}add/", data).status_code == 403
        assert self.act(operator("view_"), "pause", embed) == -1
        assert embed.func == "memoryproject.schedules.run_schedule"
        assert not Schedule.objects.filter(func="os.system").exists()
