"""The pages of rolling summaries."""

from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from moments_app.models import Job, PromptResource, Summary
from moments_app.models.summary import PROCESS, STUCK_AFTER
from moments_app.prompts import ROLLING_SUMMARY_URI
from sessions_app.models import Session, UserProfile
from sessions_app.models.application import DEFAULT
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, change_url, list_url, page, queries_of
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


def roll(session: Session, count: int, **fields: object) -> list[Summary]:
    """Create versions that cover ten turns each. Each one starts two turns later and derives from the previous one."""
    latest = Summary.objects.for_session(session).newest_first().first()
    made: list[Summary] = [latest] if latest else []
    for _ in range(count):
        start = made[-1].start_sequence + 2 if made else 0
        values = {"status": "completed", "text": f"From {start} on.", "engine": "extractive"} | fields
        sources = session.messages.turns().filter(sequence__range=(start, start + 9)).values_list("pk", flat=True)
        summary = Summary.objects.create(
            session=session,
            user_id=session.user_id,
            start_sequence=start,
            end_sequence=start + 9,
            base=made[-1] if made else None,
            source_message_ids=list(sources),
            **values,
        )
        made.append(summary)
    return made


@pytest.fixture
def session(ada: UserProfile) -> Session:
    """Thirty turns without a summary."""
    return talk(ada, 30)


def versions_url(session: Session) -> str:
    return reverse("admin:sessions_app_session_summaries", args=[session.pk])


def retry_url(session: Session) -> str:
    return reverse("admin:moments_app_summary_retry", args=[session.pk])


def failed_job(session: Session) -> Job:
    """A job of the session's summary that has used up its attempts."""
    job = Job.objects.request(PROCESS, session, requested_by="test")
    Job.objects.filter(pk=job.pk).update(status=Job.Status.FAILED, error="The model is away.")
    return job


class TestSummary:
    """A version and the list."""

    @pytest.mark.slow
    def test_the_page_takes_a_constant_number_of_queries(self, root: Client, session: Session) -> None:
        versions = roll(session, 2)
        few = [queries_of(root, url) for url in (versions_url(session), list_url(Summary), change_url(versions[0]))]
        roll(session, 60)
        many = [queries_of(root, url) for url in (versions_url(session), list_url(Summary), change_url(versions[0]))]
        assert many == few and max(many) <= MAX_QUERIES

    @pytest.mark.slow
    def test_the_base_job_and_prompt_of_a_version_take_no_extra_queries(self, root: Client, session: Session) -> None:
        first, second = roll(session, 2)
        prompt = PromptResource.objects.version_in_force(ROLLING_SUMMARY_URI, DEFAULT)
        Summary.objects.filter(pk=second.pk).update(job=failed_job(session), prompt_version=prompt)
        assert queries_of(root, change_url(second)) == queries_of(root, change_url(first))

    def test_a_version_is_shown_with_sources_base_and_next_version(self, root: Client, session: Session) -> None:
        base, summary, following = roll(session, 3, facts=[{"fact": "The rent is due.", "message_indexes": [4]}])
        shown = page(root, change_url(summary))
        assert f'rel="prev" href="{change_url(base)}"' in shown
        assert f'rel="next" href="{change_url(following)}"' in shown
        assert 'id="turn-2"' in shown and 'id="turn-11"' in shown and 'id="turn-12"' not in shown
        assert "The rent is due." in shown and 'href="#turn-4"' in shown

    @pytest.mark.parametrize("status", ["completed", "failed", "stuck"])
    def test_the_list_is_filtered_by_status(self, root: Client, session: Session, status: str) -> None:
        completed, failed, stuck = roll(session, 3)
        long_ago = timezone.now() - STUCK_AFTER - timedelta(minutes=1)
        Summary.objects.filter(pk=failed.pk).update(status="failed")
        Summary.objects.filter(pk=stuck.pk).update(status="processing", created_at=long_ago)
        shown = page(root, list_url(Summary), status=status)
        wanted = {"completed": completed, "failed": failed, "stuck": stuck}
        # A version is also linked by its successor.
        assert [name for name, row in wanted.items() if f"{change_url(row)}?" in shown] == [status]


class TestRetry:
    """Retrying a failed job."""

    def test_the_failed_job_is_queued_again(self, root: Client, session: Session) -> None:
        job = failed_job(session)
        assert retry_url(session) in page(root, versions_url(session))
        assert root.get(retry_url(session)).status_code == 405
        answer = root.post(retry_url(session), follow=True)
        assert answer.redirect_chain[-1][0] == change_url(job)
        job.refresh_from_db()
        assert job.status == Job.Status.QUEUED
        assert LogEntry.objects.filter(object_id=str(job.pk), change_message="Retried.").exists()

    def test_without_a_failed_job_there_is_no_retry(self, root: Client, session: Session) -> None:
        assert retry_url(session) not in page(root, versions_url(session))
        assert "No job of this session" in root.post(retry_url(session), follow=True).content.decode()

    def test_row_18_a_viewer_cannot_retry(self, session: Session) -> None:
        failed_job(session)
        viewer = operator("view_")
        assert retry_url(session) not in page(viewer, versions_url(session))
        assert viewer.post(retry_url(session)).status_code == 403
        assert operator("view_moment").get(versions_url(session)).status_code == 403
