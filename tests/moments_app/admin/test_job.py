"""The pages of jobs."""

import pytest
from django.test import Client

from moments_app.models import Job
from sessions_app.models import UserProfile
from tests.support.jobs import build
from tests.support.pages import change_url, list_url, page
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


class TestJob:
    """Jobs and what can be done about failed ones."""

    @pytest.fixture
    def failed(self, ada: UserProfile) -> Job:
        job = build(talk(ada, 10))
        Job.objects.filter(pk=job.pk).update(status=Job.Status.FAILED, error="The model is away.", attempts=5)
        return job

    def test_a_failed_job_is_retried_and_a_completed_one_is_not(
        self, root: Client, failed: Job, bo: UserProfile
    ) -> None:
        completed = build(talk(bo, 60))
        data = {"action": "retry", "_selected_action": [failed.pk, completed.pk]}
        shown = root.post(list_url(Job), data, follow=True).content.decode()
        assert "is queued again" in shown
        assert str(completed.job_id) in shown
        failed.refresh_from_db()
        completed.refresh_from_db()
        assert (failed.status, completed.status) == (Job.Status.QUEUED, Job.Status.COMPLETED)

    def test_it_shows_its_error(self, root: Client, failed: Job) -> None:
        assert "The model is away." in page(root, change_url(failed))

    def test_it_is_found_by_its_id(self, root: Client, failed: Job) -> None:
        assert change_url(failed) in page(root, list_url(Job), q=str(failed.job_id))
        assert change_url(failed) not in page(root, list_url(Job), q="12")

    def test_how_many_failed_stands_in_the_sidebar_of_every_page(self, root: Client, ada: UserProfile) -> None:
        assert "rem-count" not in page(root, list_url(Job))
        job = build(talk(ada, 10))
        Job.objects.filter(pk=job.pk).update(status=Job.Status.FAILED)
        assert '<span class="rem-count">1</span>' in page(root, list_url(UserProfile))
        again = [Job(process="embed", status=Job.Status.FAILED, requested_by="test") for _ in range(120)]
        Job.objects.bulk_create(again)
        assert '<span class="rem-count">99+</span>' in page(root, list_url(UserProfile))
