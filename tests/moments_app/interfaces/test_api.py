"""Moments and jobs over REST."""

import uuid
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from moments_app.models import Job, Moment
from sessions_app.models import ApiKey, Event, Message, Session, UserProfile
from tests.support.api import Api
from tests.support.jobs import assert_chain_is_whole, build
from tests.support.openai_server import OpenAIServer
from tests.support.transcript import messages, talk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("model_server")]


@pytest.fixture
def keys(ada: UserProfile, model_server: OpenAIServer) -> list[str]:
    """The keys of Ada's five moments, newest first."""
    build(talk(ada, 60, session_id="s1"), lag=0)
    build(talk(ada, 40, session_id="s2", days=1), lag=0)
    return list(Moment.objects.newest_first().values_list("key", flat=True))


def listed(api: Api, **query: Any) -> list[str]:
    answer = api.get("moments", user_id="ada", **query)
    assert answer.status_code == 200, answer.content
    return [moment["key"] for moment in answer.json()["moments"]]


def test_a_requested_build_is_accepted_and_its_job_can_be_read(service: Api, ada: UserProfile) -> None:
    talk(ada, 30)
    answer = service.post("moments/build", user_id="ada", session_id="s1", force=True)
    assert answer.status_code == 202
    assert answer.json()["status"] == "accepted"
    job = service.get(f"jobs/{answer.json()['job_id']}", user_id="ada").json()
    assert (job["status"], job["session_id"], job["user_id"]) == ("queued", "s1", "ada")
    build(Session.objects.get())
    job = service.get(f"jobs/{answer.json()['job_id']}", user_id="ada").json()
    assert (job["status"], job["attempts"], job["result"]["messages_compressed"]) == ("completed", 1, 20)
    assert job["finished_at"] > job["started_at"] > job["queued_at"]


def test_a_lag_requires_force(service: Api, ada: UserProfile) -> None:
    talk(ada, 3)
    assert service.post("moments/build", user_id="ada", session_id="s1", lag=0).status_code == 400


@pytest.mark.slow
def test_the_list_is_newest_first_in_pages(service: Api, keys: list[str]) -> None:
    answer = service.get("moments", user_id="ada", limit=2, offset=2).json()
    assert [moment["key"] for moment in answer["moments"]] == keys[2:4]
    assert (answer["total"], answer["has_more"]) == (5, True)
    assert set(answer["moments"][0]) == {
        "key",
        "name",
        "category",
        "summary",
        "topic_tags",
        "starts_timestamp",
        "ends_timestamp",
    }


@pytest.mark.slow
@pytest.mark.parametrize(("things", "name"), [("moments", "key"), ("sessions", "session_id"), ("jobs", "job_id")])
def test_a_page_after_a_row_continues_the_list(
    service: Api, ada: UserProfile, bo: UserProfile, keys: list[str], things: str, name: str
) -> None:
    for number in range(4):  # sessions with the same time
        Job.objects.create(process=f"p{number}", user=ada, requested_by="t")
        talk(ada, 1, session_id=f"t{number}")
    whole = service.get(things, user_id="ada").json()
    pages: list[dict[str, Any]] = []
    after: dict[str, str] = {}
    while not pages or pages[-1]["has_more"]:
        pages.append(service.get(things, user_id="ada", limit=2, **after).json())
        after = {"after": pages[-1][things][-1][name]}
    assert [row for page in pages for row in page[things]] == whole[things]
    assert {page["total"] for page in pages} == {whole["total"]}
    assert service.get(things, user_id="ada", **after).json()[things] == []
    refused = service.get(things, user_id="ada", offset=1, **after)
    assert (refused.status_code, refused.json()["errors"][0]["attr"]) == (400, "offset")
    assert service.get(things, user_id="bo", **after).status_code == 404


@pytest.mark.slow
def test_the_list_is_filtered(service: Api, keys: list[str]) -> None:
    assert listed(service) == keys
    assert listed(service, session_id="s2") == keys[:2]
    assert listed(service, category="session-compression") == keys
    assert listed(service, category="other") == []
    fired = Moment.objects.get(key=keys[3])
    fired.topic_tags, fired.summary = ["glaze firing", "shop"], "They fired the kilns twice."
    fired.save()
    assert listed(service, topic="glaze firing") == [keys[3]]
    assert listed(service, text="fire kiln") == [keys[3]]
    assert listed(service, text="'; DROP TABLE") == []
    first = Moment.objects.get(key=keys[-1])
    assert keys[-1] in listed(service, until=first.starts_at.isoformat())
    assert keys[0] not in listed(service, until=first.starts_at.isoformat())
    assert keys[-1] not in listed(service, since="2026-03-02T08:30:00Z")


@pytest.mark.slow
def test_a_moment_has_all_fields(service: Api, keys: list[str]) -> None:
    moment = service.get(f"moments/{keys[1]}", user_id="ada").json()
    assert moment["source_session_id"] == "s2"
    assert moment["previous_moment_keys"] == keys[2:5]
    assert (moment["first_sequence"], moment["last_sequence"]) == (0, 19)
    assert moment["engine"] == "openai:gpt-4.1-mini"
    assert {"detail", "emotion_tags", "present_persons", "created_at"} <= set(moment)


@pytest.mark.slow
def test_a_turn_names_its_moment(service: Api, keys: list[str]) -> None:
    shown = service.get("sessions/s2/messages", user_id="ada", view="all").json()["messages"]
    assert {m["moment_key"] for m in shown if m["kind"] == "turn"} == set(keys[:2])


@pytest.mark.slow
def test_the_chain_is_read_backwards(service: Api, keys: list[str]) -> None:
    answer = service.get(f"moments/{keys[0]}/chain", user_id="ada", depth=3).json()
    assert ([m["key"] for m in answer["moments"]], answer["has_more"]) == (keys[1:4], True)
    answer = service.get(f"moments/{keys[0]}/chain", user_id="ada", depth=200).json()
    assert ([m["key"] for m in answer["moments"]], answer["has_more"]) == (keys[1:], False)
    assert service.get(f"moments/{keys[-1]}/chain", user_id="ada").json() == {"moments": [], "has_more": False}


@pytest.mark.slow
def test_the_chain_takes_one_query_at_any_depth(service: Api, keys: list[str]) -> None:
    listed(service)  # records the last use of the key
    counts = []
    for depth in (1, 4):
        with CaptureQueriesContext(connection) as queries:
            service.get(f"moments/{keys[0]}/chain", user_id="ada", depth=depth)
        counts.append(len(queries))
    assert counts[0] == counts[1]


@pytest.mark.slow
def test_a_corrected_moment_keeps_its_key_and_turns(service: Api, keys: list[str]) -> None:
    answer = service.patch(f"moments/{keys[0]}", user_id="ada", summary="Better.", topic_tags=["a", "b"])
    assert answer.status_code == 200
    assert (answer.json()["summary"], answer.json()["topic_tags"], answer.json()["key"]) == (
        "Better.",
        ["a", "b"],
        keys[0],
    )
    assert listed(service, text="better") == [keys[0]]
    event = Event.objects.get(type="moment_edited")
    assert event.payload == {"key": keys[0], "fields": ["summary", "topic_tags"]}
    for fields in ({"key": "x"}, {"first_sequence": 0}, {"summary": ""}, {"topic_tags": "a"}):
        assert service.patch(f"moments/{keys[0]}", user_id="ada", **fields).status_code == 400


@pytest.mark.slow
def test_deleting_a_moment_keeps_its_turns_and_closes_the_chain(
    service: Api, ada: UserProfile, keys: list[str]
) -> None:
    assert service.delete(f"moments/{keys[2]}", user_id="ada").status_code == 204
    assert_chain_is_whole(ada)
    assert Message.objects.turns().count() == 100
    assert Event.objects.filter(type="moment_deleted").exists()
    assert service.delete(f"moments/{keys[2]}", user_id="ada").status_code == 404


@pytest.mark.slow
def test_deleting_a_session_keeps_its_moments(service: Api, keys: list[str]) -> None:
    assert service.delete("sessions/s2", user_id="ada").status_code == 204
    assert listed(service) == keys
    assert service.get(f"moments/{keys[0]}", user_id="ada").json()["source_session_id"] is None
    assert not Message.objects.filter(session__session_id="s2").exists()


@pytest.mark.slow
def test_jobs_are_listed_and_filtered(service: Api, keys: list[str]) -> None:
    answer = service.get("jobs", user_id="ada").json()
    assert (answer["total"], answer["has_more"], len(answer["jobs"])) == (2, False, 2)
    assert service.get("jobs", user_id="ada", session_id="s2").json()["total"] == 1
    assert service.get("jobs", user_id="ada", status="failed").json()["total"] == 0


@pytest.mark.slow
def test_only_failed_jobs_can_be_retried(service: Api, keys: list[str]) -> None:
    job = Job.objects.order_by("id")[0]
    answer = service.post(f"jobs/{job.job_id}/retry", user_id="ada")
    assert answer.status_code == 400
    assert "completed" in answer.json()["errors"][0]["detail"]
    Job.objects.filter(pk=job.pk).update(status="failed")
    assert service.post(f"jobs/{job.job_id}/retry", user_id="ada").status_code == 202
    job.refresh_from_db()
    assert job.status == "queued"


@pytest.mark.slow
def test_row_9_every_endpoint_treats_ids_of_another_person_as_unknown(
    service: Api, as_ada: Api, as_stranger: Api, ada: UserProfile, bo: UserProfile
) -> None:
    build(talk(bo, 40, session_id="bos"), lag=0)
    key, job = Moment.objects.get(user=bo, first_sequence=0).key, Job.objects.get().job_id
    ids = {"session": "bos", "key": key, "job": str(job)}
    unknown = {"session": "none", "key": "none", "job": str(uuid.uuid4())}
    before = list(Moment.objects.values()), list(Message.objects.values()), list(Job.objects.values())

    def probes(api: Api, ids: dict[str, str], **who: Any) -> list[Any]:
        session, moment, job = f"sessions/{ids['session']}", f"moments/{ids['key']}", f"jobs/{ids['job']}"
        return [
            api.get(session, **who),
            api.get(f"{session}/messages", **who),
            api.get(f"{session}/messages", view="all", **who),
            api.patch(session, title="x", **who),
            api.delete(session, **who),
            api.post("moments/build", session_id=ids["session"], force=True, **who),
            api.get(moment, **who),
            api.get(f"{moment}/chain", **who),
            api.patch(moment, summary="x", **who),
            api.delete(moment, **who),
            api.get(job, **who),
            api.post(f"{job}/retry", **who),
            api.get("moments", session_id=ids["session"], **who),
            api.get("jobs", session_id=ids["session"], **who),
        ]

    for api, who in ((service, {"user_id": "ada"}), (as_ada, {}), (as_ada, {"user_id": "bo"}), (as_stranger, {})):
        foreign = [(a.status_code, a.content) for a in probes(api, ids, **who)]
        absent = [(a.status_code, a.content) for a in probes(api, unknown, **who)]
        assert foreign == absent
        assert {status for status, _ in foreign[:-2]} == {404}
        assert all(b'"total":0' in content for _, content in foreign[-2:])
    assert (list(Moment.objects.values()), list(Message.objects.values()), list(Job.objects.values())) == before


@pytest.mark.slow
def test_row_9_similar_data_of_two_people_does_not_interfere(service: Api, ada: UserProfile, bo: UserProfile) -> None:
    for user in (ada, bo):
        build(talk(user, 40), lag=0)
    for user_id in ("ada", "bo"):
        moments = service.get("moments", user_id=user_id).json()
        assert moments["total"] == 2
        # The same names on the same day: keys are unique per person.
        assert not any(moment["key"].endswith("-2") for moment in moments["moments"])
    assert ApiKey.objects.count() == 1


@pytest.mark.slow
def test_lists_take_a_constant_number_of_queries(service: Api, ada: UserProfile) -> None:
    counts = []
    for size in (1, 30):
        for number in range(size):
            service.post(f"sessions/{size}-{number}/messages", user_id="ada", messages=messages(1))
            Job.objects.create(process=f"p{size}{number}", user=ada, requested_by="t")
        with CaptureQueriesContext(connection) as queries:
            for path in ("sessions", "jobs", "moments"):
                assert service.get(path, user_id="ada").status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1] <= 18
