"""Operating the system in a browser."""

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from moments_app.models import Job
from sessions_app.models import UserProfile
from tests.support.jobs import work_off
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_operator_can_find_and_retry_a_failed_job(tab: Page, ada: UserProfile) -> None:
    job = Job.objects.request("build_moments", talk(ada, 60), requested_by="append", force=True)
    Job.objects.update(status="failed", attempts=6, error="The model is away.", finished_at=timezone.now())
    tab.goto("/admin/")
    expect(tab.get_by_text("1 job failed permanently.")).to_be_visible()
    tab.get_by_role("link", name="View details").click()
    tab.get_by_role("link", name="Build moments").first.click()
    expect(tab.locator(".rem-op-error")).to_have_text("The model is away.")
    tab.get_by_role("button", name="Retry now").click()
    expect(tab.get_by_text("is queued again")).to_be_visible()
    work_off()
    tab.reload()
    expect(tab.locator(".rem-badge").first).to_have_text("completed")
    expect(tab.get_by_role("heading", name="Moments", exact=True)).to_be_visible()
    tab.goto("/admin/")
    expect(tab.get_by_text("failed permanently")).to_have_count(0)
    job.refresh_from_db()
    assert job.status == "completed"


def test_an_operator_can_cancel_a_waiting_job(tab: Page, ada: UserProfile) -> None:
    job = Job.objects.request("build_moments", talk(ada, 60), requested_by="append", force=True)
    tab.goto(f"/admin/moments_app/job/{job.pk}/change/")
    tab.get_by_role("button", name="Cancel").click()
    expect(tab.locator(".rem-badge").first).to_have_text("cancelled")
    expect(tab.get_by_role("button", name="Retry now")).to_be_visible()


def test_the_charts_are_drawn(tab: Page, ada: UserProfile) -> None:
    talk(ada, 60)
    tab.goto("/admin/")
    canvas = tab.locator("canvas.chart").first
    expect(canvas).to_be_visible()
    tab.wait_for_function("Chart.getChart(document.querySelector('canvas.chart')) !== undefined")
    tab.get_by_text("Chart data as a table").click()
    expect(tab.get_by_role("columnheader", name="New sessions")).to_be_visible()
