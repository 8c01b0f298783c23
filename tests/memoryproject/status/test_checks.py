"""The health checks of the site."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from memoryproject.status.checks import (
    DASHBOARD_CHECKS,
    DEGRADING_CHECKS,
    READINESS_CHECKS,
    CheckData,
    Level,
    findings,
    judge,
)
from memoryproject.status.site_state import Change, State, record_refused_providers
from moments_app.models import Job
from sessions_app.clock import TIMES_CORRECTED, write_event
from sessions_app.models import UserProfile
from tests.support.newer import newer_version
from tests.support.operator import operator
from tests.support.pages import page
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


def trouble(ada: UserProfile) -> None:
    """Create a finding for most checks."""
    Job.objects.request("build_moments", talk(ada, 5), requested_by="test")
    Job.objects.update(run_after=timezone.now() - timedelta(minutes=10))
    for _ in range(3):
        write_event("process_restarted", "run", {"told": "It ended."})
        Change(State.DEGRADED, "", timezone.now(), ["It is slow."]).record()
    record_refused_providers(["Check ENGINE__API_KEY."])
    write_event(TIMES_CORRECTED, "watch", {"told": "1 timestamp in moments_app.Job.run_after"})


def test_a_finding_has_a_name_a_level_and_a_sentence(ada: UserProfile) -> None:
    trouble(ada)
    found = {finding.name: finding for finding in findings((*READINESS_CHECKS, *DEGRADING_CHECKS), CheckData())}
    assert list(found) == ["queue", "providers", "restarts", "clocks"]
    assert {finding.level for finding in found.values()} == {Level.DEGRADED}
    assert found["restarts"].sentence == "Processes crashed 3 times in 10 minutes. The latest: It ended."


def test_a_verdict_takes_a_constant_number_of_queries(
    ada: UserProfile, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    judge()
    with CaptureQueriesContext(connection) as captured:
        assert judge().state == State.UP
    trouble(ada)
    with django_assert_max_num_queries(len(captured)):
        assert judge().state == State.DEGRADED


def test_checks_of_one_page_share_their_queries(ada: UserProfile) -> None:
    trouble(ada)
    facts = CheckData()
    assert "worker" in {finding.name for finding in findings(DASHBOARD_CHECKS, facts)}
    with CaptureQueriesContext(connection) as captured:
        assert (facts.work.due, len(facts.recent_events.changes)) == (1, 1)
    assert len(captured) == 0


def test_no_further_checks_run_after_one_that_finds_the_site_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memoryproject.status.checks.is_schema_current", False)
    with newer_version():
        found = findings(DASHBOARD_CHECKS, CheckData())
        assert [(finding.name, finding.level) for finding in found] == [("migrations", Level.DOWN)]


def test_the_dashboard_reports_times_that_were_reset(ada: UserProfile) -> None:
    trouble(ada)
    shown = page(operator(), reverse("admin:index"))
    assert "Timestamps in the future were reset to the current time: 1 timestamp in moments_app.Job.run_after." in shown
