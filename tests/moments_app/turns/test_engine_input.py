"""The input of engines: days are those of the person's time zone."""

from datetime import UTC, datetime

import pytest

from moments_app.models import MemoryAtom, Moment
from sessions_app.models import UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support.jobs import build
from tests.support.openai_server import OpenAIServer
from tests.support.streams import form

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]

EVENING = datetime(2026, 3, 2, 4, tzinfo=UTC)  # still 1 March there


def at_the_pacific(user: UserProfile) -> None:
    user.timezone = "America/Los_Angeles"
    user.save(update_fields=["timezone"])


def said_at_night(user: UserProfile) -> list[NewMessage]:
    said = ("user", "I moved to Bergen yesterday."), ("assistant", "I see."), ("user", "Thanks."), ("assistant", "Yes.")
    return [NewMessage(role, text, created_at=EVENING) for role, text in said]


def test_yesterday_is_resolved_in_the_persons_time_zone(ada: UserProfile, bo: UserProfile) -> None:
    at_the_pacific(ada)
    for user, day in ((ada, "28 February 2026"), (bo, "1 March 2026")):
        session = append(user, "s1", said_at_night(user)).session
        form(session)
        build(session, lag=0)
        [fact] = MemoryAtom.objects.filter(user=user, attribute="home")
        assert fact.content == f"User: I moved to Bergen yesterday [{day}]."
        assert day in Moment.objects.get(user=user).summary


def test_a_model_gets_times_in_the_persons_time_zone(ada: UserProfile, model_server: OpenAIServer) -> None:
    at_the_pacific(ada)
    form(append(ada, "s1", said_at_night(ada)).session)
    assert "2026-03-01 20:00" in str(model_server.requests[-1])
    assert "2026-03-02" not in str(model_server.requests[-1]["messages"][-1])


def test_an_unknown_time_zone_is_utc(ada: UserProfile) -> None:
    UserProfile.objects.filter(pk=ada.pk).update(timezone="Mars/Phobos")
    ada.refresh_from_db()
    assert ada.zone.key == "UTC"
