"""The pages of limits, and usage on the pages of keys and applications."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from moments_app.models import Job
from sessions_app.models import ApiKey, Application, DailyLimit, DailyUsage, UserProfile
from sessions_app.models.daily_limit import today, tomorrow
from tests.support.daily_limits import limit
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, change_url, list_url, page, queries_of
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)

ADD = "admin:sessions_app_dailylimit_add"
BLANK = {"key": "", "application": "", "requests": "", "model_calls": "", "usd": ""}


@pytest.fixture
def key(ada: UserProfile) -> ApiKey:
    return ApiKey.objects.issue("kiln", user=ada)[0]


def use(**amounts: Any) -> None:
    DailyUsage.objects.create(**{"day": today(), "requests": 1_234, "usd": "0.25"} | amounts)


@pytest.mark.slow
def test_a_limit_is_added_for_a_key_or_an_application_and_changed(root: Client, key: ApiKey) -> None:
    other = Application.objects.create(name="other")
    add = reverse(ADD)
    assert "Choose a key or an application." in root.post(add, BLANK | {"requests": 5}).content.decode()
    assert (
        "Choose a key or an application, not both."
        in root.post(add, BLANK | {"application": other.pk, "key": key.pk}).content.decode()
    )
    assert root.post(add, BLANK | {"key": key.pk, "requests": 5}).status_code == 302
    assert "already exists" in root.post(add, BLANK | {"key": key.pk}).content.decode()
    made = DailyLimit.objects.get()
    assert (made.key, made.requests, made.usd) == (key, 5, None)
    assert root.post(change_url(made), BLANK | {"requests": "", "usd": "0"}).status_code == 302
    made.refresh_from_db()
    assert made.key == key and made.requests is None and made.usd == 0
    assert "no limit" in page(root, list_url(DailyLimit))


def test_only_a_search_of_the_list_shows_a_number_of_results(root: Client, key: ApiKey) -> None:
    limit(key, requests=5)
    assert "Show all" not in page(root, list_url(DailyLimit))
    shown = page(root, list_url(DailyLimit), q="kiln")
    assert "1 result" in shown and "Show all" in shown


def test_negative_amounts_are_rejected(root: Client, key: ApiKey) -> None:
    for name in ("requests", "model_calls", "usd"):
        assert root.post(reverse(ADD), BLANK | {"key": key.pk, name: "-1"}).status_code == 200
    assert not DailyLimit.objects.exists()


def test_an_application_can_be_chosen_if_there_are_several(root: Client, ada: UserProfile) -> None:
    assert 'name="application"' not in page(root, reverse(ADD))
    other = Application.objects.create(name="other")
    assert root.post(reverse(ADD), BLANK | {"application": other.pk, "requests": 5}).status_code == 302
    assert "other" in page(root, list_url(DailyLimit))
    use(application=other)
    made = DailyLimit.objects.get()
    assert "1,234" in page(root, change_url(made))
    shown = page(root, change_url(other))
    assert "1,234" in shown and change_url(made) in shown


@pytest.mark.slow
def test_the_page_of_a_key_shows_its_usage(root: Client, key: ApiKey) -> None:
    assert f"{reverse(ADD)}?key={key.pk}" in page(root, change_url(key))
    made = limit(key, requests=1_000)
    use(key=key)
    shown = page(root, change_url(key))
    assert change_url(made) in shown
    for told in ("1,234", "used up", "0.25", "1,000"):
        assert told in shown
    assert "1,234" in page(root, change_url(made))
    assert queries_of(root, change_url(key)) <= MAX_QUERIES


def test_a_persons_page_shows_waiting_jobs_and_the_reason(root: Client, ada: UserProfile) -> None:
    job = Job.objects.request("build_moments", talk(ada, 60), requested_by="test", force=True)
    told = "Waiting for the next day: The daily limit application-usd is reached: 1 USD a day for this application."
    Job.objects.filter(pk=job.pk).postpone(tomorrow(), told)
    shown = page(root, change_url(ada))
    assert "1 job</a>" in shown and told in shown
    assert told in page(root, change_url(job))


def test_viewers_cannot_change_limits_and_others_see_no_usage(key: ApiKey) -> None:
    made = limit(key, requests=5)
    use(key=key)
    viewer = operator("view_apikey", "view_dailyusage", "view_dailylimit")
    assert "1,234" in page(viewer, change_url(key))
    assert change_url(made) not in page(viewer, change_url(key))
    assert viewer.post(change_url(made), BLANK).status_code == 403
    assert viewer.get(reverse(ADD)).status_code == 403
    assert "1,234" not in page(operator("view_apikey"), change_url(key))
