"""The journey across a person's moments: how it is derived, what engines receive of it, and where it is stored."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from pytest_django.fixtures import Settings

from moments_app.engines.calls.moments import Journey, KnownMoment
from moments_app.models import Job, Moment
from moments_app.moments.journey import extended, journey_text
from moments_app.moments.partition import delete_moment
from moments_app.moments.rebuild import RebuildMoments
from moments_app.sessions.settle import Settle
from sessions_app.models import Session, UserProfile
from tests.support.jobs import build, work_off
from tests.support.openai_server import OpenAIServer
from tests.support.transcript import talk

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)


def given(server: OpenAIServer) -> list[list[list[str]]]:
    """Return the latest moments in each request for moments."""
    found = []
    for body in server.requests:
        first = body["messages"][1]["content"].splitlines()[0]
        if first.startswith("Recent moments, newest first: "):
            found.append(json.loads(first.removeprefix("Recent moments, newest first: ")))
    return found


def told_at(session: Session) -> list[str]:
    """Return the journey at each boundary of a session."""
    events = session.messages.partitions().order_by("pk")
    return [event.payload["recent_moments_summary"] for event in events if event.payload]


class TestText:
    """The text of the journey, from any engine."""

    def test_each_recent_moment_has_a_dated_line(self) -> None:
        days = [MONDAY - timedelta(days=day) for day in (3, 60)]
        before = [KnownMoment(f"trip-{day:%m}", f"On the way in {day:%B}. {'And on. ' * 30}", day, day) for day in days]
        journey = journey_text(Journey(before, count=37, since=datetime(2024, 1, 2, tzinfo=UTC)))
        assert journey == (
            "2024-01-02 to 2026-02-27, 37 moments: 2026-01-01 trip 01: On the way in January. "
            "2026-02-27 trip 02: On the way in February."
        )

    def test_a_title_does_not_end_a_line(self) -> None:
        moment = KnownMoment("vet", "Rufus saw Dr. Lund in Oslo. He rests.", MONDAY, MONDAY)
        assert (
            journey_text(Journey([moment], 1, MONDAY))
            == "2026-03-02, 1 moment: 2026-03-02 vet: Rufus saw Dr. Lund in Oslo."
        )

    def test_the_oldest_moments_are_dropped(self) -> None:
        days = [MONDAY - timedelta(days=number) for number in range(30)]
        before = [KnownMoment(f"day-{number}", "Words. " * 90, day, day) for number, day in enumerate(days)]
        journey = journey_text(extended(Journey([], 0), before))
        assert len(journey) < 1_000 and "30 moments: " in journey
        assert re.findall(r"day (\d+):", journey) == ["7", "6", "5", "4", "3", "2", "1", "0"]


@pytest.mark.django_db(transaction=True)
class TestModel:
    """Builds with a model."""

    @pytest.mark.slow
    def test_the_journey_is_passed_from_call_to_call_and_build_to_build(
        self, ada: UserProfile, bo: UserProfile, model_server: OpenAIServer, settings: Settings
    ) -> None:
        settings.MOMENT_BUILDER = settings.MOMENT_BUILDER.model_copy(update={"max_input_tokens": 500})
        build(talk(bo, 5, session_id="bos", days=0), lag=0)
        first = talk(ada, 60, session_id="first", days=0)
        build(first, lag=0)
        second = talk(ada, 5, session_id="second", days=40)
        build(second, lag=0)
        [_bos, *calls] = given(model_server)
        assert len(calls) >= 3 and calls[0] == []
        made = list(Moment.objects.filter(source_session=first).newest_first())
        last = calls[-1]
        assert [name for name, _, _ in last] == [moment.name for moment in made[: len(last)]]
        assert last[0][1:] == ["2026-03-02", made[0].summary]
        [journey] = told_at(second)
        assert journey.startswith(f"2026-03-02 to 2026-04-11, {Moment.objects.filter(user=ada).count()} moments: ")

    @pytest.mark.parametrize("ended", ["without a boundary", "settled", "deleted"])
    def test_the_journey_continues_after_every_kind_of_checkpoint(
        self, ada: UserProfile, model_server: OpenAIServer, settings: Settings, ended: str
    ) -> None:
        session = talk(ada, 25, session_id="first", days=0)
        if ended == "settled":
            Session.objects.update(last_activity_at="2026-03-02T09:00Z")
            Job.objects.request(Settle.name, session, requested_by="test", force=True)
            work_off()
            assert Session.objects.get().status == "cleared"
        else:
            conf = {"insert_partition_event": ended != "without a boundary"}
            settings.MOMENT_BUILDER = settings.MOMENT_BUILDER.model_copy(update=conf)
            build(session, lag=0)
        if ended == "deleted":
            session.delete()
        build(talk(ada, 25, session_id="second", days=3), lag=0)
        journey = Moment.objects.newest_first()[0].journey
        assert journey.startswith(f"2026-03-02 to 2026-03-05, {Moment.objects.count()} moments: 2026-03-02 ")

    @pytest.mark.slow
    def test_row_37_the_engine_receives_the_moments_that_are_earlier_in_time(
        self, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        for session_id, day in (("first", 0), ("third", 90), ("second", 30), ("fourth", 120)):
            build(talk(ada, 25, session_id=session_id, days=day), lag=0)
        months = [[day[5:7] for _, day, _ in moments] for moments in given(model_server)]
        assert months == [[], ["03", "03"], ["03", "03"], ["05", "05"]]
        [second], [fourth] = (told_at(Session.objects.get(session_id=name)) for name in ("second", "fourth"))
        assert second.startswith("2026-03-02 to 2026-04-01, 4 moments: ") and "2026-05" not in second
        assert fourth.startswith("2026-03-02 to 2026-06-30, 8 moments: ") and "2026-04-01 " in fourth

    @pytest.mark.slow
    def test_a_rebuild_gets_the_moments_before_it(self, ada: UserProfile, model_server: OpenAIServer) -> None:
        for number in range(3):
            build(talk(ada, 25, session_id=f"s{number}", days=number * 10), lag=0)
        session = Session.objects.get(session_id="s1")
        before = told_at(session)
        Job.objects.request(RebuildMoments.name, session, requested_by="test")
        work_off()
        assert [day for _, day, _ in given(model_server)[-1]] == ["2026-03-02"] * 2
        assert told_at(session) == before

    @pytest.mark.slow
    def test_a_deleted_moment_is_left_out(self, ada: UserProfile, model_server: OpenAIServer) -> None:
        sessions = [talk(ada, 25, session_id=f"s{number}", days=number * 10) for number in range(3)]
        for session in sessions:
            build(session, lag=0)
        for moment in sessions[1].moments.all():
            delete_moment(moment, actor="test")
        last = talk(ada, 25, session_id="last", days=90)
        build(last, lag=0)
        [journey] = told_at(last)
        assert f", {Moment.objects.count()} moments: " in journey and "2026-03-12" not in journey


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_without_a_model_it_is_dated_and_limited_across_sessions(ada: UserProfile) -> None:
    sessions = [talk(ada, 45, session_id=f"s{number}", days=number * 9) for number in range(6)]
    for session in sessions:
        build(session, lag=0)
    count = Moment.objects.count()
    [journey] = told_at(sessions[-1])
    assert journey.startswith(f"2026-03-02 to 2026-04-16, {count} moments: 2026-0")
    assert "2026-04-07 " in journey and "2026-04-16 " in journey[30:] and len(journey) < 1_000
    assert Moment.objects.newest_first()[0].journey == journey
    [first] = told_at(sessions[0])
    assert first.startswith("2026-03-02, ")
