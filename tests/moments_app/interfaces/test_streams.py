"""Memory streams over REST."""

import re
import uuid
import zipfile
from io import BytesIO
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from drf_spectacular.generators import SchemaGenerator

from moments_app.interfaces.api.streams import IGNORED_FIELDS, IGNORED_HELP
from moments_app.models import Job, MemoryAtom, MemoryStream
from moments_app.streams.consolidate import Consolidate
from sessions_app.models import ApiKey, UserProfile
from tests.support.api import Api
from tests.support.contract import PREFIX, description
from tests.support.jobs import work_off
from tests.support.streams import note, shard
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "Quartz"  # in the prompts of a shard


@pytest.fixture
def mine(ada: UserProfile) -> MemoryStream:
    """The user stream of Ada."""
    MemoryStream.objects.ensure_for(talk(ada, 2))
    return MemoryStream.objects.get(stream_type="user")


def make(api: Api, **fields: Any) -> Any:
    return api.post("streams", {"user_id": "ada", "name": "kilns", "extraction_prompt": "Ways to repair.", **fields})


def readable(**named: str) -> list[str]:
    """Return the paths of all read calls whose path parameters are among these names."""
    paths = [path.removeprefix(PREFIX) for path, calls in description()["paths"].items() if "get" in calls]
    return [path.format_map(named) for path in paths if set(re.findall(r"{(\w+)}", path)) <= set(named)]


def content_of(answer: Any) -> bytes:
    """Return the content of a response; for an export, of all its files."""
    content = b"".join(answer)
    if answer["Content-Type"] != "application/zip":
        return content
    with zipfile.ZipFile(BytesIO(content)) as archive:
        return b"".join(archive.read(name) for name in archive.namelist())


class TestShards:
    """Shards, which all users of an agent share."""

    def test_a_shard_is_added_changed_and_listed(self, service: Api, mine: MemoryStream) -> None:
        made = make(service, fact_max=3)
        assert made.status_code == 201, made.content
        key = made.json()["stream_id"]
        assert (made.json()["agent_id"], made.json()["fact_max"], made.json()["observation_max_words"]) == ("", 3, 35)
        changed = service.patch(f"streams/{key}", user_id="ada", consolidated_content="Elements last three years.")
        assert changed.status_code == 200
        read = service.get(f"streams/{key}", user_id="ada").json()
        assert read["consolidated_content"] == "Elements last three years."
        listed = service.get("streams", user_id="ada").json()
        assert listed["streams"][0]["stream_type"] == "agent"
        assert listed["total"] == 3
        assert service.get("streams", user_id="ada", stream_type="user").json()["total"] == 1

    def test_fields_for_buffer_sizes_are_deprecated(self, service: Api) -> None:
        schemas = SchemaGenerator().get_schema(request=None, public=True)["components"]["schemas"]  # type: ignore[no-untyped-call]
        for name in ("StreamAnswer", "ShardInputRequest", "PatchedStreamPatchRequest"):
            fields = schemas[name]["properties"]
            deprecated = {field for field, told in fields.items() if told.get("deprecated")}
            assert deprecated == set(IGNORED_FIELDS)
            assert {fields[field]["description"] for field in IGNORED_FIELDS} == {IGNORED_HELP}

    def test_a_name_that_is_taken_is_a_conflict(self, service: Api) -> None:
        assert [make(service).status_code for _ in range(2)] == [201, 409]
        assert make(service, agent_id="coach").status_code == 201

    def test_a_shard_named_lessons_extracts_only_observations(self, service: Api) -> None:
        made = make(service, name="lessons").json()
        assert (made["extracts_facts"], made["extracts_observations"]) == (False, True)

    @pytest.mark.parametrize(
        ("fields", "attr"),
        [
            ({"name": ""}, "name"),
            ({"extraction_prompt": ""}, "extraction_prompt"),
            ({"fact_min": 9, "fact_max": 2}, "fact_min"),
            ({"fact_max": -1}, "fact_max"),
            ({"fact_max": 10_001}, "fact_max"),
            ({"colour": "red"}, "colour"),
        ],
    )
    def test_errors_of_bad_input_name_the_field(self, service: Api, fields: dict[str, Any], attr: str) -> None:
        answer = make(service, **fields)
        assert answer.status_code == 400
        assert [error["attr"] for error in answer.json()["errors"]] == [attr]

    def test_a_users_key_reads_shards_but_cannot_change_them(self, as_ada: Api) -> None:
        stream = shard("kilns")
        path = f"streams/{stream.stream_id}"
        assert as_ada.get(path).status_code == 200
        assert as_ada.patch(path, consolidated_content="x").status_code == 403
        assert as_ada.post(f"{path}/atoms", {"atom_type": "fact", "content": "x"}).status_code == 403
        assert as_ada.post(f"{path}/consolidate", {}).status_code == 403
        assert as_ada.post("streams", {"name": "n", "extraction_prompt": "p"}).status_code == 403
        assert not MemoryAtom.objects.exists()

    @pytest.mark.slow
    def test_only_a_service_key_reads_prompts(self, service: Api, as_ada: Api, mine: MemoryStream) -> None:
        stream = shard("kilns", prompt=f"{SECRET} inversions.", consolidation_prompt=f"{SECRET} in one line.")
        for path in (f"streams/{stream.stream_id}", "streams"):
            assert service.get(path, user_id="ada").content.decode().count(SECRET) == 2
        for path in readable(stream_id=str(stream.stream_id), user_id="ada"):
            assert SECRET.encode() not in content_of(as_ada.get(path)), path
        shown = as_ada.get(f"streams/{stream.stream_id}").json()
        assert (shown["name"], shown["extraction_prompt"], shown["consolidation_prompt"]) == ("kilns", None, None)
        assert as_ada.get(f"streams/{mine.stream_id}").json()["extraction_prompt"] == mine.extraction_prompt

    def test_changing_settings_requires_an_admin_key(self, ada: UserProfile) -> None:
        writer = Api(ApiKey.objects.issue("writer", scope="write")[1])
        stream = shard("kilns")
        assert make(writer, name="other").status_code == 403
        assert writer.patch(f"streams/{stream.stream_id}", user_id="ada", is_active=False).status_code == 403
        added = writer.post(
            f"streams/{stream.stream_id}/atoms", {"user_id": "ada", "atom_type": "fact", "content": "x"}
        )
        assert added.status_code == 201


class TestAtoms:
    """The items of a stream."""

    def test_an_item_written_directly_twice_is_stored_once(self, service: Api, mine: MemoryStream) -> None:
        path, body = f"streams/{mine.stream_id}/atoms", {"user_id": "ada", "atom_type": "fact", "content": "A fact."}
        first = service.post(path, body)
        again = service.post(path, body | {"content": "a FACT"})
        assert (first.status_code, again.status_code) == (201, 200)
        assert first.json()["atom_id"] == again.json()["atom_id"]
        assert service.get(path, user_id="ada", atom_type="fact").json()["total"] == 1
        assert service.get(path, user_id="ada", state="evicted").json()["total"] == 0

    @pytest.mark.slow
    def test_row_1_a_client_that_got_no_response_can_repeat_an_absorbed_item(
        self, service: Api, mine: MemoryStream
    ) -> None:
        path = f"streams/{mine.stream_id}"
        body = {"user_id": "ada", "atom_type": "observation", "content": "Ada likes short answers.", "external_id": "7"}
        first = service.post(f"{path}/atoms", body)
        service.post(f"{path}/consolidate", {"user_id": "ada"})
        work_off()
        again = service.post(f"{path}/atoms", body)
        assert (first.status_code, again.status_code) == (201, 200)
        assert again.json()["atom_id"] == first.json()["atom_id"]
        assert (again.json()["state"], again.json()["external_id"]) == ("absorbed", "7")
        retraction = {"user_id": "ada", "atom_ids": [again.json()["atom_id"]], "reason": "It is wrong."}
        assert service.post("retractions", retraction).status_code == 201
        work_off()
        assert "short answers" not in service.get(path, user_id="ada").json()["consolidated_content"]
        assert not MemoryAtom.objects.filter(content__contains="short answers").exists()

    @pytest.mark.slow
    def test_a_repeated_statement_is_added_after_the_first_was_absorbed(self, service: Api, mine: MemoryStream) -> None:
        path = f"streams/{mine.stream_id}"
        body = {"user_id": "ada", "atom_type": "observation", "content": "Ada likes short answers."}
        ids = []
        for external_id in ("7", "8", None):
            answer = service.post(f"{path}/atoms", body | {"external_id": external_id})
            assert answer.status_code == 201
            ids.append(answer.json()["atom_id"])
            service.post(f"{path}/consolidate", {"user_id": "ada"})
            work_off()
        assert len(set(ids)) == 3

    def test_blank_items_get_400(self, service: Api, mine: MemoryStream) -> None:
        answer = service.post(f"streams/{mine.stream_id}/atoms", user_id="ada", atom_type="fact", content=" \n")
        assert answer.status_code == 400
        assert [(error["code"], error["attr"]) for error in answer.json()["errors"]] == [("blank", "content")]

    def test_the_error_for_an_id_of_another_item_names_the_field(self, service: Api, mine: MemoryStream) -> None:
        path = f"streams/{mine.stream_id}/atoms"
        body = {"user_id": "ada", "atom_type": "fact", "content": "Ada keeps bees.", "external_id": "7"}
        assert service.post(path, body).status_code == 201
        for other in ({"content": "Ada keeps goats."}, {"atom_type": "observation"}):
            refused = service.post(path, body | other)
            assert refused.status_code == 409
            assert [error["code"] for error in refused.json()["errors"]] == ["external_id_taken"]
        assert service.post(path, body | {"external_id": "x" * 256}).json()["errors"][0]["attr"] == "external_id"
        assert service.get(path, user_id="ada").json()["total"] == 1

    def test_row_9_external_ids_in_a_shard_are_unique_per_person(self, ada: UserProfile) -> None:
        UserProfile.objects.ensure("bob")
        writer = Api(ApiKey.objects.issue("writer", scope="write")[1])
        path = f"streams/{shard('kilns').stream_id}/atoms"
        body = {"atom_type": "fact", "external_id": "7"}
        of_ada = writer.post(path, body | {"user_id": "ada", "content": "Kilns crack."})
        of_bob = writer.post(path, body | {"user_id": "bob", "content": "Kilns glow."})
        assert (of_ada.status_code, of_bob.status_code) == (201, 201)
        again = writer.post(path, body | {"user_id": "bob", "content": "Kilns glow."})
        assert again.json()["atom_id"] == of_bob.json()["atom_id"]

    def test_the_list_takes_a_constant_number_of_queries(self, service: Api, mine: MemoryStream) -> None:
        def queries() -> int:
            with CaptureQueriesContext(connection) as captured:
                assert service.get(f"streams/{mine.stream_id}/atoms", user_id="ada").status_code == 200
            return len(captured)

        note(mine, "one")
        queries()
        few = queries()
        for number in range(40):
            note(mine, f"more {number}")
        assert queries() == few

    def test_a_consolidation_is_requested_and_undone(self, service: Api, mine: MemoryStream) -> None:
        note(mine, "Ada likes short answers.")
        path = f"streams/{mine.stream_id}"
        accepted = service.post(f"{path}/consolidate", {"user_id": "ada"})
        assert accepted.status_code == 202
        work_off()
        job = service.get(f"jobs/{accepted.json()['job_id']}", user_id="ada").json()
        assert job["status"] == "completed"
        shown = service.get(path, user_id="ada").json()
        assert "short answers" in shown["consolidated_content"]
        carried = {
            "text": shown["consolidated_content"],
            "is_by_hand": False,
            "observations": [mine.atoms.get(state="absorbed").uri],
        }
        assert shown["lines"] == [carried]
        assert service.post(f"{path}/undo", {"user_id": "ada"}).json()["consolidated_content"] == ""
        assert service.post(f"{path}/undo", {"user_id": "ada"}).status_code == 400

    def test_a_service_adds_a_shard_without_naming_a_user(self, service: Api, as_ada: Api) -> None:
        answer = service.post("streams", {"name": "glazes", "extraction_prompt": "Ways to glaze."})
        assert answer.status_code == 201, answer.content
        assert MemoryStream.objects.get(name="glazes").user is None
        assert service.get("streams").status_code == 400  # a list must name a person
        admin = Api(ApiKey.objects.issue("ada", user=UserProfile.objects.get(user_id="ada"), scope="admin")[1])
        assert admin.post("streams", {"name": "more", "extraction_prompt": "p"}).status_code == 403

    def test_a_service_key_requests_a_shards_consolidation(self, service: Api, ada: UserProfile) -> None:
        stream = shard("kilns")
        note(stream, "Elements last three years.")
        accepted = service.post(f"streams/{stream.stream_id}/consolidate", {"user_id": "ada"})
        assert accepted.status_code == 202
        work_off()
        assert Job.objects.get().result["absorbed"] == 1
        path = f"jobs/{accepted.json()['job_id']}"
        assert service.get(path, user_id="ada").json()["status"] == "completed"
        Job.objects.update(status="failed")
        assert service.post(f"{path}/retry", user_id="ada").status_code == 202
        Job.objects.update(status="failed")
        assert service.post(f"{path}/retry", user_id="somebody").status_code == 202

    def test_a_users_key_sees_no_jobs_without_a_user(self, service: Api, as_ada: Api) -> None:
        on_shard = Job.objects.request(Consolidate.name, stream=shard("kilns"), requested_by="test")
        of_the_site = Job.objects.request("count_words", requested_by="test")
        assert service.get("jobs", user_id="somebody").json()["total"] == 0
        assert as_ada.get("jobs", user_id="somebody").json()["total"] == 0
        for job in (on_shard, of_the_site):
            assert as_ada.get(f"jobs/{job.job_id}").status_code == 404
            assert as_ada.get(f"jobs/{job.job_id}", user_id="somebody").status_code == 404
        assert service.get(f"jobs/{of_the_site.job_id}", user_id="somebody").status_code == 404


def test_row_9_streams_of_another_person_look_unknown(service: Api, mine: MemoryStream, bo: UserProfile) -> None:
    note(mine, "Ada's own.")
    for path in (f"streams/{mine.stream_id}", f"streams/{mine.stream_id}/atoms"):
        assert service.get(path, user_id="bo").status_code == 404
        assert service.get(path.replace(str(mine.stream_id), str(uuid.uuid4())), user_id="bo").status_code == 404
    assert service.patch(f"streams/{mine.stream_id}", user_id="bo", consolidated_content="x").status_code == 404
    body = {"user_id": "bo", "atom_type": "fact", "content": "planted"}
    assert service.post(f"streams/{mine.stream_id}/atoms", body).status_code == 404
    for verb in ("consolidate", "undo"):
        assert service.post(f"streams/{mine.stream_id}/{verb}", {"user_id": "bo"}).status_code == 404
    assert service.get("streams", user_id="bo").json()["total"] == 0
