"""The journey across a person's moments: what engines are told of it, and where it is kept."""

import json
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from moments_app.models import Job, Moment
from moments_app.moments.delete import delete_moment
from moments_app.moments.rebuild import RebuildMoments
from moments_app.sessions.settle import Settle
from sessions_app.models import Session, UserProfile
from tests.support import openai_server as behave
from tests.support.jobs import build, work_off
from tests.support.openai_server import OpenAIServer
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


def numbered(server: OpenAIServer) -> None:
    """Has each call of the engine tell a journey of its own: the first `Way 1.`"""
    told: list[str] = []

    def answer(handler: behave.Handler, body: dict[str, Any]) -> None:
        made = behave.right_answer(body)
        part = made.get("moments")
        built: dict[str, Any] = part if isinstance(part, dict) else made  # of a combined call
        if "recent_journey" in built:
            told.append(f"Way {len(told) + 1}.")
            built["recent_journey"] = told[-1]
        handler.complete(json.dumps(made))

    server.always(answer)


def given(server: OpenAIServer) -> list[tuple[dict[str, Any], list[list[str]]]]:
    """What each call for moments was told: of the journey, and of the latest moments."""
    found = []
    for body in server.requests:
        lines = body["messages"][1]["content"].splitlines()
        if lines[0].startswith("Journey so far: "):
            journey = json.loads(lines[0].removeprefix("Journey so far: "))
            found.append((journey, json.loads(lines[1].removeprefix("Recent moments, newest first: "))))
    return found


def told_at(session: Session) -> list[str]:
    """The journey at each boundary of a session."""
    events = session.messages.partitions().order_by("pk")
    return [event.payload["recent_moments_summary"] for event in events if event.payload]


class TestModel:
    """What a model is told."""

    @pytest.mark.slow
    def test_it_is_carried_from_call_to_call_and_from_build_to_build(
        self, ada: UserProfile, bo: UserProfile, model_server: OpenAIServer, settings: Settings
    ) -> None:
        settings.MOMENT_BUILDER = settings.MOMENT_BUILDER.model_copy(update={"max_input_tokens": 500})
        numbered(model_server)
        build(talk(bo, 5, session_id="bos", days=0), lag=0)
        first = talk(ada, 60, session_id="first", days=0)
        build(first, lag=0)
        second = talk(ada, 5, session_id="second", days=40)
        build(second, lag=0)
        [_bos, *calls] = given(model_server)
        assert len(calls) >= 3
        assert [journey["told"] for journey, _ in calls] == ["", *(f"Way {n + 2}." for n in range(len(calls) - 1))]
        assert calls[0][1] == [] and "since" not in calls[0][0]
        last, moments = calls[-1]
        made = list(Moment.objects.filter(source_session=first).newest_first())
        assert last["since"] == "2026-03-02"
        assert [name for name, _, _ in moments] == [moment.name for moment in made[: len(moments)]]
        assert moments[0][1:] == ["2026-03-02", made[0].summary]
        assert told_at(second) == [f"Way {len(calls) + 1}."]

    @pytest.mark.parametrize("ended", ["without a boundary", "settled", "deleted"])
    def test_it_lasts_however_a_session_ends(
        self, ada: UserProfile, model_server: OpenAIServer, settings: Settings, ended: str
    ) -> None:
        numbered(model_server)
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
        assert given(model_server)[-1][0] == {"told": "Way 1.", "since": "2026-03-02"}

    @pytest.mark.slow
    def test_what_is_built_late_is_told_of_what_was_before_it_and_leads_nobody_astray(
        self, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        numbered(model_server)
        for session_id, day in (("first", 0), ("third", 90), ("second", 30), ("fourth", 120)):
            build(talk(ada, 25, session_id=session_id, days=day), lag=0)
        told = [(journey["told"], [day[5:7] for _, day, _ in moments]) for journey, moments in given(model_server)]
        assert told == [
            ("", []),
            ("Way 1.", ["03", "03"]),
            ("Way 1.", ["03", "03"]),
            ("Way 2.", ["05", "05"]),
        ]

    @pytest.mark.slow
    def test_moments_made_anew_are_told_of_what_was_before_them(
        self, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        numbered(model_server)
        for number in range(3):
            build(talk(ada, 25, session_id=f"s{number}", days=number * 10), lag=0)
        Job.objects.request(RebuildMoments.name, Session.objects.get(session_id="s1"), requested_by="test")
        work_off()
        assert given(model_server)[-1][0] == {"told": "Way 1.", "since": "2026-03-02"}
        assert told_at(Session.objects.get(session_id="s1")) == ["Way 4."]

    @pytest.mark.slow
    def test_a_journey_through_a_moment_that_was_deleted_is_not_carried_on(
        self, ada: UserProfile, model_server: OpenAIServer
    ) -> None:
        numbered(model_server)
        sessions = [talk(ada, 25, session_id=f"s{number}", days=number * 10) for number in range(3)]
        for session in sessions:
            build(session, lag=0)
        delete_moment(sessions[1].moments.earliest("first_sequence"), actor="test")
        build(talk(ada, 25, session_id="last", days=90), lag=0)
        assert given(model_server)[-1][0]["told"] == "Way 1."


@pytest.mark.slow
def test_without_a_model_it_is_dated_and_leads_across_sessions_within_bounds(ada: UserProfile) -> None:
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
