"""Retraction over REST and by command."""

import re
from typing import Any

import pytest
from django.core.management import CommandError

from moments_app.models import Moment, Retraction
from moments_app.provenance.retract import TurnsAreArchived
from moments_app.provenance.undo import undo_retraction
from sessions_app.models import ApiKey, Event, Session, UserProfile
from sessions_app.retention.restore import restore_archive
from sessions_app.retention.retain import retain
from tests.support.api import Api
from tests.support.commands import printed
from tests.support.jobs import build, work_off
from tests.support.retention import cover, covered_session
from tests.support.transcript import retracted, talk

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def session(ada: UserProfile) -> Session:
    session = talk(ada, 40)
    build(session, lag=0)
    return session


@pytest.mark.slow
def test_turns_are_previewed_retracted_listed_and_restored(service: Api, session: Session) -> None:
    asked = {"user_id": "ada", "session_id": "s1", "sequences": [3, 4], "reason": "planted"}
    preview = service.post("retractions", **asked, preview=True)
    assert preview.status_code == 200 and retracted() == []
    assert preview.json()["moment_keys"] == list(Moment.objects.order_by("id").values_list("key", flat=True))
    answer = service.post("retractions", **asked)
    made = answer.json()
    assert answer.status_code == 201 and retracted() == [3, 4]
    assert (made["turns"], made["withdrawn"]) == (2, preview.json()["withdrawn"])
    work_off()
    listed = service.get("retractions", user_id="ada").json()
    assert listed == {"retractions": [made], "total": 1, "has_more": False}
    assert service.get(f"retractions/{made['retraction_id']}", user_id="ada").json() == made
    undone = service.post(f"retractions/{made['retraction_id']}/undo", user_id="ada")
    assert undone.status_code == 200 and undone.json()["undone_at"] and retracted() == []
    assert service.post(f"retractions/{made['retraction_id']}/undo", user_id="ada").status_code == 400
    events = Event.objects.filter(type__in=("memory_retracted", "retraction_undone")).order_by("id")
    assert [event.payload["turns"] for event in events] == [2, 2]


@pytest.mark.slow
@pytest.mark.usefixtures("archive_folder")
def test_undoing_a_retraction_restores_turns_that_were_archived_since(service: Api, session: Session) -> None:
    asked = {"user_id": "ada", "session_id": "s1", "sequences": [3, 4], "reason": "planted"}
    address = f"retractions/{service.post('retractions', **asked).json()['retraction_id']}/undo"
    work_off()
    cover(session, session.message_count)
    assert retain().archived_turns == 40
    with pytest.raises(TurnsAreArchived, match="session s1 has archived turns"):
        undo_retraction(Retraction.objects.get(), requested_by="test")
    assert service.post(address, user_id="ada").status_code == 200
    assert session.messages.turns().unretracted().count() == 40


@pytest.mark.usefixtures("archive_folder")
def test_a_session_of_which_only_one_month_was_restored_is_retracted_as_a_whole(service: Api, ada: UserProfile) -> None:
    session = covered_session(ada, 6)
    retain()
    restore_archive(session, actor="test", month=session.archives.earliest("month").month)
    answer = service.post("retractions", user_id="ada", session_id="s1", reason="planted")
    assert (answer.status_code, answer.json()["turns"]) == (201, 6)
    assert retracted() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "wrong",
    [{"sequences": []}, {"sequences": [99]}, {"sequences": [-1]}, {"sequences": "3"}, {"reason": ""}, {"extra": 1}],
)
def test_errors_name_turns_that_cannot_be_retracted(service: Api, session: Session, wrong: dict[str, Any]) -> None:
    asked = {"user_id": "ada", "session_id": "s1", "sequences": [3], "reason": "planted"}
    answer = service.post("retractions", **asked | wrong)
    assert answer.status_code == 400 and answer.json()["errors"][0]["detail"]
    assert retracted() == [] and not Retraction.objects.exists()


def test_a_retraction_requires_an_admin_key(session: Session, ada: UserProfile) -> None:
    writer = Api(ApiKey.objects.issue("writer", user=ada)[1])
    asked = {"session_id": "s1", "reason": "planted"}
    assert writer.post("retractions", **asked).status_code == 403
    assert writer.get("retractions").status_code == 403
    assert retracted() == []


@pytest.mark.slow
def test_row_9_retractions_of_another_person_look_unknown(
    service: Api, as_ada: Api, session: Session, bo: UserProfile
) -> None:
    talk(bo, 4, session_id="bos")
    bos = service.post("retractions", user_id="bo", session_id="bos", reason="x").json()["retraction_id"]
    for api, who in ((service, {"user_id": "ada"}), (as_ada, {}), (as_ada, {"user_id": "bo"})):
        assert api.get(f"retractions/{bos}", **who).status_code == 404
        assert api.post(f"retractions/{bos}/undo", **who).status_code == 404
        assert api.post("retractions", session_id="bos", reason="x", **who).status_code == 404
        assert api.get("retractions", **who).json()["total"] == 0
    assert Retraction.objects.get().undone_at is None


@pytest.mark.slow
def test_a_session_with_a_retraction_can_be_deleted(service: Api, session: Session) -> None:
    made = service.post("retractions", user_id="ada", session_id="s1", sequences=[3], reason="x").json()
    assert service.delete("sessions/s1", user_id="ada").status_code == 204
    assert service.get(f"retractions/{made['retraction_id']}", user_id="ada").json()["session_id"] is None


class TestCommand:
    @pytest.mark.slow
    def test_the_command_previews_retracts_and_undoes(self, session: Session) -> None:
        said = printed("retract", "ada", "s1", "--sequences", "3,7-9", "--dry-run")
        assert said.startswith("Would retract 4 turns") and retracted() == []
        said = printed("retract", "ada", "s1", "--sequences", "3,7-9", "--reason", "planted")
        assert retracted() == [3, 7, 8, 9]
        made = re.search(r"Retraction (\S+):", said)
        assert made
        assert "undone" in printed("retract", "--undo", made[1])
        assert retracted() == []

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("args", "told"),
        [
            ((), "Name a user and a session"),
            (("ada",), "Name a user and a session"),
            (("ada", "none"), "no session"),
            (("ada", "s1"), "--reason"),
            (("ada", "s1", "--reason", "x", "--sequences", "3,x"), "such as 3,4,7-9"),
            (("ada", "s1", "--reason", "x", "--sequences", "9-7"), "from 1 to 10000 turns"),
            (("ada", "s1", "--reason", "x", "--sequences", "0-99999999999"), "from 1 to 10000 turns"),
            (("ada", "s1", "--reason", "x", "--sequences", "50"), "no turn 50"),
            (("--undo", "x"), "not the id of a retraction"),
            (("--undo", "00000000-0000-0000-0000-000000000000"), "no retraction"),
        ],
    )
    def test_errors_of_the_command_say_what_is_wrong(self, session: Session, args: tuple[str, ...], told: str) -> None:
        with pytest.raises(CommandError, match=told):
            printed("retract", *args)
        assert retracted() == []
