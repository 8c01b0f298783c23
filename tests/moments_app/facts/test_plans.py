"""Plans have dates: a plan whose day has passed ends automatically and keeps its sentence."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction
from django.utils import timezone

from moments_app.engines.statements.dates import date_in_words, plan_ends
from moments_app.models import Cause, MemoryAtom, MemoryStream
from moments_app.models.atom import BY_DATE
from moments_app.reports.housekeeping import housekeeping
from moments_app.streams.edit import evict, restore
from moments_app.streams.timeline import End, end
from sessions_app.models import Message, UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support.api import Api
from tests.support.lives import say
from tests.support.operator import operator
from tests.support.pages import change_url
from tests.support.streams import note

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
def test_a_plan_is_valid_until_its_day_ends(ada: UserProfile, said: str, ends: str) -> None:
    say(ada, "s1", "2026-11-28", said)
    plan = MemoryAtom.objects.get(user=ada, kind="plan")
    assert said[:4] in plan.content
    assert plan.valid_until == datetime.fromisoformat(ends).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "said",
    [
        "I will swim in Rome from tomorrow.",
        "I will swim in Rome from 3 December on.",
        "Starting next Friday, I will swim in Rome.",
        "I will swim in Rome after next week.",
        "I am going to swim in Rome since Monday.",
        "I am going to swim in Rome every Monday.",
        "Every week, I am going to swim on Friday.",
        "I am going to swim in Rome each year on 3 December.",
        "Desde mañana nado en Roma con mi hermana.",
    ],
)
def test_an_open_ended_plan_has_no_end(ada: UserProfile, said: str) -> None:
    say(ada, "s1", "2026-11-28", said)
    [plan] = MemoryAtom.objects.filter(user=ada, stream__stream_type="user")
    assert (plan.kind, plan.valid_until) == ("plan", None)


@pytest.mark.parametrize(
    ("plan", "ends"),
    [
        ("Nora will be in Rome from 3 December to 5 December.", "2026-12-06"),
        ("Nora will be in Rome from tomorrow [29 November 2026] until next Friday.", "2026-12-05"),
        ("Nora will be in Rome 3 December – 5 December 2026.", "2026-12-06"),
        ("Nora will swim every Monday until 3 December.", "2026-12-04"),
        ("Nora will fly from Oslo the day after tomorrow.", "2026-12-01"),
        ("Nora will fly home from Rome tomorrow to meet everyone.", "2026-11-30"),
        ("Nora ira à Rome le 3 décembre avec toute sa famille.", "2026-12-04"),
        ("Nora ira nager le lundi.", None),
        ("Ab morgen schwimmt Nora in Rom.", None),
        ("Nora schwimmt ab nächster Woche jeden Montag in Rom.", None),
        ("À partir de demain, Nora nage à Rome.", None),
        ("从明天起诺拉每周一游泳。", None),
        ("Yarından itibaren Nora Roma'da yüzecek.", None),
        ("내일부터 노라는 로마에서 수영한다.", None),
        ("Holnaptól Nora Rómában úszik.", None),
        ("С 3 декабря Нора будет плавать в Риме.", None),
        ("明日から金曜日まで、ノラはローマにいます。", "2026-12-05"),
    ],
)
def test_a_plan_ends_on_the_last_day_of_a_range(plan: str, ends: str | None) -> None:
    at = plan_ends(plan, datetime(2026, 11, 28, 12, tzinfo=UTC), UTC)
    assert at == (datetime.fromisoformat(ends).replace(tzinfo=UTC) if ends else None)


@pytest.mark.parametrize(
    ("zone", "said_at", "day", "ends"),
    [
        ("Asia/Tokyo", "2026-11-28T23:00Z", "30 November 2026", "2026-12-01T00:00+09:00"),
        ("America/Los_Angeles", "2026-11-29T02:00Z", "29 November 2026", "2026-11-30T00:00-08:00"),
        ("UTC", "2026-11-28T12:00Z", "29 November 2026", "2026-11-30T00:00+00:00"),
    ],
)
def test_days_of_a_plan_are_in_the_persons_time_zone(
    ada: UserProfile, service: Api, zone: str, said_at: str, day: str, ends: str
) -> None:
    service.patch("users/ada", timezone=zone)
    stream = MemoryStream.objects.ensure_of_person(ada, "default")
    body = {"user_id": "ada", "atom_type": "fact", "content": "Nora will fly to Rome tomorrow.", "formed_at": said_at}
    assert service.post(f"streams/{stream.stream_id}/atoms", **body).status_code == 201
    assert MemoryAtom.objects.get().valid_until == datetime.fromisoformat(ends)
    append(ada, "s2", [NewMessage("user", "Hello.")])
    assert f"(planned for {day})" in context(service)
    MemoryAtom.objects.update(valid_until=datetime(2026, 11, 27, tzinfo=UTC))  # as an earlier release computed it
    assert housekeeping().plans_ended == (datetime.fromisoformat(ends) <= timezone.now())
    assert MemoryAtom.objects.get().valid_until == datetime.fromisoformat(ends)
    assert f"(planned for {day})" in context(service)


@pytest.mark.slow
def test_profile_and_plans_follow_a_change_of_the_time_zone(ada: UserProfile, bo: UserProfile, service: Api) -> None:
    for user in (ada, bo):
        stream = MemoryStream.objects.ensure_of_person(user, "default")
        said = {"user_id": user.user_id, "atom_type": "fact", "formed_at": "2026-11-28T23:00Z"}
        for content in ("Nora will fly to Rome tomorrow.", "Nora loves pasta."):
            assert service.post(f"streams/{stream.stream_id}/atoms", **said, content=content).status_code == 201

    def days() -> list[str]:
        return re.findall(r"\((2026-.*?)\)", service.get("users/ada").json()["summary"])

    def ends(user: UserProfile) -> datetime | None:
        return MemoryAtom.objects.get(user=user, kind="plan").valid_until

    assert days() == ["2026-11-28"] * 2
    service.patch("users/ada", timezone="Asia/Tokyo")
    assert days() == ["2026-11-29"] * 2
    assert ends(ada) == datetime.fromisoformat("2026-12-01T00:00+09:00")
    profile = {"timezone": "America/Los_Angeles", "metadata": "{}"}
    assert operator().post(change_url(ada), profile).status_code == 302
    assert days() == ["2026-11-28"] * 2
    assert ends(ada) == datetime.fromisoformat("2026-11-30T00:00-08:00")
    assert ends(bo) == datetime(2026, 11, 30, tzinfo=UTC)


def test_a_restored_plan_keeps_its_end(ada: UserProfile, service: Api) -> None:
    say(ada, "s1", "2026-11-28", "I will fly to Rome in May 2027 with my sister Greta.")
    plan = MemoryAtom.objects.get(user=ada, kind="plan")
    until = datetime(2027, 6, 1, tzinfo=UTC)
    evict(plan, requested_by="test")
    restore(plan, requested_by="test")
    assert MemoryAtom.objects.get(pk=plan.pk).valid_until == until
    later = note(plan.stream, "Nora stays at home.", "fact", formed_at=timezone.now())
    with transaction.atomic():
        end(plan, End(timezone.now(), timezone.now(), later), Cause("test"))
    evict(later, requested_by="test")
    plan.refresh_from_db()
    assert (plan.state, plan.valid_until) == ("active", until)
    past = {"formed_at": datetime(2020, 5, 1, tzinfo=UTC), "content": "Nora will fly to Rome in May 2020."}
    MemoryAtom.objects.filter(pk=plan.pk).update(**past)
    plan.refresh_from_db()
    evict(plan, requested_by="test")
    restore(plan, requested_by="test")
    plan.refresh_from_db()
    assert (plan.state, plan.ended_by, plan.ended_at) == ("ended", BY_DATE, datetime(2020, 6, 1, tzinfo=UTC))


@pytest.mark.slow
def test_a_plan_reworded_by_an_operator_ends_on_its_new_day(ada: UserProfile) -> None:
    say(ada, "s1", "2026-11-28", "I will fly to Rome in May 2027 with my sister Greta.")
    plan, root = MemoryAtom.objects.get(user=ada, kind="plan"), operator()

    def end_after(content: str, said_on: str) -> datetime | None:
        newest = plan.history.newest_first().first()
        edited = {"content": content, "formed_at_0": said_on, "formed_at_1": "12:00:00"}
        edited["last_change"] = str(newest.pk) if newest else ""
        assert root.post(change_url(plan), edited).status_code == 302
        return MemoryAtom.objects.get(pk=plan.pk).valid_until

    assert end_after("User: I will fly to Rome tomorrow.", "2026-11-28") == datetime(2026, 11, 30, tzinfo=UTC)
    assert end_after("User: I will fly to Rome tomorrow.", "2026-11-29") == datetime(2026, 12, 1, tzinfo=UTC)
    assert end_after("User: I will fly to Rome.", "2026-11-29") is None


def test_an_ended_plan_is_not_shown_as_planned(ada: UserProfile, service: Api) -> None:
    said_on = timezone.now() - timedelta(days=1)
    say(ada, "s1", f"{said_on:%Y-%m-%d}", "I will fly to Rome next month with my sister Greta.")
    fact = MemoryAtom.objects.get(user=ada, kind="plan").atom_id
    service.patch(f"facts/{fact}", user_id="ada", state="ended")
    Message.objects.all().delete()
    assert "planned for" not in context(service)


def test_a_past_plan_ends_and_is_shown_with_its_day(ada: UserProfile, service: Api) -> None:
    said_on = timezone.now() - timedelta(days=5)
    say(ada, "s1", f"{said_on:%Y-%m-%d}", "I will fly to Rome tomorrow with my sister Greta.")
    plan = MemoryAtom.objects.get(user=ada, kind="plan")
    Message.objects.all().delete()  # the turn has the same text
    shown = f"(planned for {date_in_words((said_on + timedelta(days=1)).date())})"
    assert shown in context(service)
    assert housekeeping().plans_ended == 1 and housekeeping().plans_ended == 0
    ended = MemoryAtom.objects.get(pk=plan.pk)
    assert (ended.state, ended.ended_by, ended.content) == ("ended", BY_DATE, plan.content)
    assert ended.ended_at and ended.ended_at == ended.valid_until and ended.ended_at < timezone.now()
    assert service.get("facts", user_id="ada").json()["facts"] == []
    assert shown in context(service)


def test_a_plan_for_a_future_day_does_not_end(ada: UserProfile) -> None:
    say(ada, "s1", f"{timezone.now():%Y-%m-%d}", "I will fly to Rome tomorrow with my sister Greta.")
    assert housekeeping().plans_ended == 0
    assert MemoryAtom.objects.get(user=ada, kind="plan").state == "active"
