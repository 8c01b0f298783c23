"""The cost of model calls, and the people that they were made for."""

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core.cache import cache
from django.urls import reverse
from django.utils import timezone

from moments_app.models import EngineCall, Job, PromptVersion, Summary
from moments_app.reports.cost import Usage, cost_of_person, site_cost
from sessions_app.models import Message, UserProfile
from sessions_app.models.application import DEFAULT
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, change_url, list_url, page, queries_of
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)

COST = reverse("admin:moments_app_enginecall_cost")


def call(user: UserProfile | None = None, usd: str = "0.5", **fields: Any) -> EngineCall:
    job = (
        Job.objects.create(process="build_moments", user=user, status="completed", requested_by="test")
        if user
        else None
    )
    values = {"purpose": "moments", "engine": "openai:m", "latency_ms": 5, "ok": True, "input_tokens": 100} | fields
    return EngineCall.objects.create(job=job, cost_usd=Decimal(usd), **values)


def made_days_ago(number: int, made: EngineCall) -> None:
    EngineCall.objects.filter(pk=made.pk).update(created_at=timezone.now() - timedelta(days=number))


def test_costs_of_a_person_are_summed_by_month_and_purpose(ada: UserProfile, bo: UserProfile) -> None:
    call(ada)
    call(ada, "0.25", purpose="summary", output_tokens=7)
    call(ada, "0", ok=False, error_kind="timeout")
    made_days_ago(40, call(ada, "2"))
    call(bo, "9")
    cost = cost_of_person(ada, EngineCall.objects.all())
    assert [(purpose, used.calls, used.usd) for _, purpose, used in cost.months][-1] == ("moments", 1, Decimal(2))
    assert {purpose: used for _, purpose, used in cost.months[:2]} == {
        "moments": Usage(2, 1, 200, 0, Decimal("0.5"), 0),
        "summary": Usage(1, 0, 100, 7, Decimal("0.25"), 0),
    }
    assert (cost.total.calls, cost.total.usd, cost.left_out) == (4, Decimal("2.75"), None)


def test_total_costs_are_equal_by_day_application_person_and_prompt(ada: UserProfile, bo: UserProfile) -> None:
    version = PromptVersion.objects.earliest("pk")
    call(ada, prompt_version=version)
    call(bo, "3")
    call(None, "1", purpose="embed")
    made_days_ago(31, call(bo, "50"))
    cost = site_cost()
    assert {purpose: used.usd for _, purpose, used in cost.days} == {"moments": Decimal("3.5"), "embed": Decimal(1)}
    assert [(name, used.usd) for _, name, used in cost.people] == [("bo", 3), ("ada", Decimal("0.5"))]
    assert [(pk, used.usd) for pk, _, used in cost.applications] == [(DEFAULT, Decimal("3.5")), (None, Decimal(1))]
    assert [(name, used.calls) for _, name, _, used in cost.prompts] == [(version.resource.name, 1)]
    assert cost.total.usd == sum(used.usd for *_, used in cost.applications) == Decimal("4.5")


def test_tokens_of_turns_are_counted_by_arrival_and_tokens_sent_by_day(ada: UserProfile) -> None:
    talk(ada, 10)
    Message.objects.update(arrived_at=timezone.now(), tokens=20)
    call(ada, input_tokens=500)
    cost = site_cost()
    assert (cost.all_turn_tokens, cost.total.tokens_in, cost.input_tokens_per_turn_token) == (200, 500, 2.5)
    [(day, said, used)] = cost.by_day
    assert (day, said, used.tokens_in) == (timezone.now().date(), 200, 500)


def test_the_slowest_and_stuck_summaries_are_listed(ada: UserProfile) -> None:
    session = talk(ada, 4)
    window = {"session": session, "user": ada, "start_sequence": 0, "end_sequence": 1}
    slow, _ = (
        Summary.objects.create(**window, status="completed", generation_time_ms=took, text="x")
        for took in (9_000, 1_000)
    )
    Summary.objects.create(**window, status="processing", created_at=timezone.now() - timedelta(days=1))
    times = site_cost().summaries
    assert (times.number, times.mean, times.stuck) == (2, 5.0, 1)
    assert times.slowest[0] == (slow.pk, "s1", 9.0)
    cache.clear()
    shown = page(operator(), COST)
    assert "9.00 s, s1" in shown and change_url(slow) in shown and f"{list_url(Summary)}?status=stuck" in shown


@pytest.mark.slow
def test_each_figure_links_to_its_rows(ada: UserProfile) -> None:
    call(ada)
    root = operator()
    cache.clear()
    shown, today = page(root, COST), f"{timezone.now():%Y-%m-%d}"
    days = f"created_at_from={today}&amp;created_at_to={today}"
    assert f"{list_url(EngineCall)}?{days}" in shown and f"?purpose=moments&amp;{days}" in shown
    assert reverse("admin:sessions_app_userprofile_cost", args=[ada.pk]) in shown
    listed = page(root, f"{list_url(EngineCall)}?{days}".replace("&amp;", "&"))
    assert "0.500000" in listed
    cache.clear()
    assert queries_of(root, COST) <= MAX_QUERIES
    assert operator("view_enginecall").get(COST).status_code == 403
    assert "By person" not in page(operator("view_enginecall", "view_job"), COST)
