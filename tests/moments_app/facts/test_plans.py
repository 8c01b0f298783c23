"""Plans have dates: one whose day is over ends by itself, and keeps its sentence."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from moments_app.engines.statements.dates import spoken_date
from moments_app.models import MemoryAtom
from moments_app.reports.housekeeping import housekeeping
from moments_app.streams.timeline import BY_DATE
from sessions_app.models import Message, UserProfile
from tests.support.api import Api
from tests.support.lives import say

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]


def context(service: Api) -> str:
    asked = service.get("memory/context", user_id="ada", session_id="s2", query="Who flies to Rome with me?")
    return str(asked.json()["context"])


@pytest.mark.parametrize(
    ("said", "ends"),
    [
        ("I fly to Rome next Friday with my sister.", "2026-12-05"),
        ("I will fly to Rome on 3 December with my sister.", "2026-12-04"),
        ("I am going to run the marathon in Rome in May 2027.", "2027-06-01"),
        ("Ich fliege nächsten Freitag mit meiner Schwester nach Rom.", "2026-12-05"),
        ("El próximo viernes vuelo a Roma con mi hermana.", "2026-12-05"),
        ("Je pars à Rome vendredi prochain avec ma sœur.", "2026-12-05"),
        ("我下周五和姐姐去罗马。", "2026-12-05"),
        ("Я лечу с сестрой в Рим в следующую пятницу.", "2026-12-05"),
    ],
)
def test_a_plan_lasts_until_its_day_is_over(ada: UserProfile, said: str, ends: str) -> None:
    say(ada, "s1", "2026-11-28", said)
    plan = MemoryAtom.objects.get(user=ada, kind="plan")
    assert said[:4] in plan.content
    assert plan.valid_until == datetime.fromisoformat(ends).replace(tzinfo=UTC)


def test_a_plan_whose_day_is_over_ends_and_is_shown_with_its_day(ada: UserProfile, service: Api) -> None:
    said_on = timezone.now() - timedelta(days=5)
    say(ada, "s1", f"{said_on:%Y-%m-%d}", "I will fly to Rome tomorrow with my sister Greta.")
    plan = MemoryAtom.objects.get(user=ada, kind="plan")
    Message.objects.all().delete()  # the turn says the same
    shown = f"(planned for {spoken_date((said_on + timedelta(days=1)).date())})"
    assert shown in context(service)
    assert housekeeping().plans_ended == 1 and housekeeping().plans_ended == 0
    ended = MemoryAtom.objects.get(pk=plan.pk)
    assert (ended.state, ended.ended_by, ended.content) == ("ended", BY_DATE, plan.content)
    assert ended.ended_at and ended.ended_at == ended.valid_until and ended.ended_at < timezone.now()
    assert service.get("facts", user_id="ada").json()["facts"] == []
    assert shown in context(service)


def test_a_plan_of_another_day_stays(ada: UserProfile) -> None:
    say(ada, "s1", f"{timezone.now():%Y-%m-%d}", "I will fly to Rome tomorrow with my sister Greta.")
    assert housekeeping().plans_ended == 0
    assert MemoryAtom.objects.get(user=ada, kind="plan").state == "active"
