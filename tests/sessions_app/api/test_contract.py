"""The OpenAPI schema is correct. `tests.support.api` also checks the responses of all other tests against it."""

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from django.test import Client
from pytest_django.fixtures import Settings
from rest_framework.exceptions import ValidationError

from sessions_app.api.fields import ONLY_SPACE, TEXT, AsOfField, AwareDateTimeField, PublicIdField, WordsField
from sessions_app.api.schema import pattern_of
from sessions_app.models import ApiKey, Session, UserProfile
from tests.support.api import Api
from tests.support.concurrency import at_once
from tests.support.contract import CHAT, check, description
from tests.support.transcript import messages, talk

pytestmark = pytest.mark.django_db(transaction=True)


def described(api: Api) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(api.client.get("/api/v1/schema", headers=api.headers).content)
    return found


def calls(of: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in of["paths"].items():
        for method, call in methods.items():
            yield path, method, call


def test_the_schema_names_its_version_and_server(service: Api) -> None:
    found = described(service)
    assert found["servers"] == [{"url": "/", "description": "The site that serves this schema."}]
    assert all(path.startswith((f"/api/v{found['info']['version']}/", CHAT)) for path in found["paths"])


class TestErrors:
    """All errors have one shape. Errors of the chat endpoint have OpenAI's."""

    def test_every_error_response_uses_the_same_schema(self) -> None:
        whole = description()
        names = {name for name in whole["components"]["schemas"] if "Error" in name}
        assert names == {"Error", "OpenAIError"}
        for path, method, call in calls(whole):
            for status, answer in call["responses"].items():
                if status.startswith("2"):
                    continue
                name = answer.get("$ref", "").rsplit("/", 1)[-1]
                told = whole["components"]["responses"].get(name, answer)
                schema = told["content"]["application/json"]["schema"]
                error = "OpenAIError" if path.startswith(CHAT) else "Error"
                assert schema == {"$ref": f"#/components/schemas/{error}"}, f"{method} {path} {status}"

    def test_every_call_declares_the_common_errors(self) -> None:
        for path, method, call in calls(description()):
            if path.startswith(CHAT):
                assert {"400", "401", "403", "405", "408", "411", "413", "429", "502", "503", "504"} <= set(
                    call["responses"]
                )
                continue
            common = {"400", "401", "403", "405", "406", "408", "411", "413", "429", "500", "503"}
            assert common <= set(call["responses"]), f"{method} {path}"
            assert ("415" in call["responses"]) == ("requestBody" in call)

    @pytest.mark.parametrize(
        ("path", "method", "status", "code"),
        [
            ("sessions/{session_id}/messages", "post", "409", "external_id_taken"),
            ("sessions/{session_id}", "delete", "409", "conflict"),
            ("users/{user_id}", "delete", "409", "legal_hold"),
            ("users/{user_id}/export", "get", "500", "archive_unreadable"),
            ("streams", "post", "409", "already_there"),
            ("streams/{stream_id}/undo", "post", "400", "cannot_undo"),
            ("retractions", "post", "400", "cannot_retract"),
            ("retractions/{retraction_id}/undo", "post", "400", "cannot_put_back"),
            ("jobs/{job_id}/retry", "post", "400", "cannot_change"),
            ("memory/context", "get", "422", "budget_too_small"),
        ],
    )
    def test_each_call_names_its_own_error_codes(self, path: str, method: str, status: str, code: str) -> None:
        assert f"`{code}`" in description()["paths"][f"/api/v1/{path}"][method]["responses"][status]["description"]

    def test_an_unknown_host_gets_the_common_error_shape(self, service: Api, settings: Settings) -> None:
        settings.ALLOWED_HOSTS = ["memory.example"]
        answer = Client().get("/api/v1/sessions", headers=service.headers)
        assert answer.status_code == 400
        check("get", "/api/v1/sessions", answer)

    def test_a_rate_limited_response_has_retry_after(self, service: Api, settings: Settings) -> None:
        settings.API_RATE = 1
        answers = at_once(lambda _: service.get("sessions", user_id="ada"), 8)
        assert {"429"} <= {str(answer.status_code) for answer in answers}
        assert all("Retry-After" in answer for answer in answers if answer.status_code == 429)

    def test_other_methods_are_405_with_the_allowed_ones(self, service: Api) -> None:
        for method in ("put", "options", "trace"):
            answer = getattr(service.client, method)("/api/v1/sessions", headers=service.headers)
            assert answer.status_code == 405
            assert answer["Allow"] == "GET, HEAD, POST"


class TestAddresses:
    """A row can be requested by the name that it was given."""

    @pytest.mark.parametrize("name", [".", ".."])
    def test_dot_segments_are_not_valid_names(self, service: Api, name: str) -> None:
        encoded = "".join(f"%{ord(letter):02X}" for letter in name)
        for path in (f"sessions/{encoded}/messages", f"sessions/{encoded}/compact"):
            answer = service.post(path, user_id="ada", messages=messages(1))
            assert answer.status_code == 404
        assert service.get(f"users/{encoded}").status_code == 404
        assert service.post("sessions", user_id="ada", session_id=name).status_code == 400
        assert not Session.objects.exists()

    @pytest.mark.parametrize("name", ["...", "..a", ".a", "a.", "a b", "é", "%", "\n", "x" * 255, "..\n"])
    def test_other_names_can_be_requested(self, service: Api, name: str) -> None:
        assert service.post("sessions", user_id=name, session_id=name).status_code == 201
        encoded = "".join(f"%{byte:02X}" for byte in name.encode())
        assert service.get(f"sessions/{encoded}", user_id=name).json()["session_id"] == name


class TestFields:
    """The patterns in the schema accept what the fields accept."""

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            *((PublicIdField(), it) for it in ("a", ".", "..", "...", ".a", "..a", "a/b", "a\0", "", "é\n")),
            *(
                (WordsField(), it)
                for it in ("a", " ", "\n\t", " a ", "\n a", "\0", "a\0", "\0\n", "", "\u2003", "\x1c", "\x85", "\ufeff")
            ),
            *(
                (AwareDateTimeField(), it)
                for it in (
                    "1970-01-01T00:00:00Z",
                    "2100-12-31T23:59:59.999999Z",
                    "1969-12-31T23:59:59Z",
                    "2101-01-01T00:00:00Z",
                    "2100-02-29T00:00:00Z",
                    "2099-12-31T23:59:59+14:00",
                    "2026-03-02T08:14:05+05:30",
                    "2026-03-02T08:14:05",
                    "2026-02-30T08:14:05Z",
                    "2024-02-29T08:14:05-23:59",
                    "2023-02-29T08:14:05-23:59",
                    "2026-03-02T24:00:00Z",
                    "2026-03-02T08:14:60Z",
                    "2026-03-02",
                    "yesterday",
                )
            ),
            *(
                (AsOfField(), it)
                for it in (
                    "1970-01-01",
                    "1972-02-29",
                    "2000-02-29",
                    "2023-02-29",
                    "2023-02-29T08:14:05Z",
                    "2096-02-29",
                    "2099-02-29",
                    "2099-12-31",
                    "2100-12-31",
                    "2100-02-29",
                    "2101-01-01",
                    "2026-03-02T08:14:05Z",
                )
            ),
        ],
    )
    def test_a_pattern_accepts_what_its_field_accepts(self, field: Any, value: str) -> None:
        try:
            field.run_validation(value)
            is_taken = True
        except ValidationError:
            is_taken = False
        told = {"type": "string", "minLength": 1, **pattern_of(field)}
        assert is_taken == jsonschema_rs.validator_for(told).is_valid(value)

    def test_the_patterns_of_long_texts_are_simple_enough_to_generate_from(self) -> None:
        """Combining both patterns for a text of 100,000 characters kept schemathesis from generating requests."""
        content = description()["components"]["schemas"]["VersionInputRequest"]["properties"]["content"]
        assert (content["pattern"], content["not"]) == (TEXT, {"pattern": ONLY_SPACE})

    @pytest.mark.parametrize(
        ("path", "fields", "attr"),
        [
            ("sessions/s1", {"legal_hold": "true"}, "legal_hold"),
            ("sessions/s1", {"legal_hold": 1}, "legal_hold"),
            ("sessions/s1", {"compact_on_request": ""}, "compact_on_request"),
        ],
    )
    def test_only_json_booleans_are_accepted_as_booleans(
        self, service: Api, ada: UserProfile, path: str, fields: dict[str, Any], attr: str
    ) -> None:
        talk(ada, 1)
        answer = service.patch(path, user_id="ada", **fields)
        assert (answer.status_code, answer.json()["errors"][0]["attr"]) == (400, attr)

    def test_only_json_numbers_and_canonical_ids_are_accepted(self, service: Api, ada: UserProfile) -> None:
        talk(ada, 1)
        asked: dict[str, Any] = {"user_id": "ada", "query": "turn"}
        for count in ("5", True, 5.5, [5]):
            answer = service.post("memory/search", **asked, match_count=count)
            assert (answer.status_code, answer.json()["errors"][0]["attr"]) == (400, "match_count")
        assert service.post("memory/search", **asked, match_count=5.0).status_code == 200
        assert service.get("sessions", user_id="ada", limit="5").status_code == 200
        task = service.post("entities", user_id="ada", kind="task", title="t").json()["entity_id"]
        for other in (5, task.replace("-", ""), f"urn:uuid:{task}"):
            assert service.post(f"entities/{task}/links", user_id="ada", to=other).status_code == 400


class TestClients:
    """What code generators make of the schema."""

    def test_every_operation_id_is_a_subject_and_a_verb(self) -> None:
        does = {
            *("list", "get", "create", "update", "delete", "append", "export", "build", "chain", "search", "compact"),
            *("retry", "undo", "consolidate", "post", "run", "correct", "withdraw", "activate", "try"),
        }
        names = [call["operationId"] for _, _, call in calls(description())]
        assert [name for name in names if re.fullmatch(r"[a-z]+", name.rpartition("_")[0]) is None] == []
        assert {name.rpartition("_")[2] for name in names} <= does
        assert len(set(names)) == len(names)
        assert {"sessions_list", "sessions_get", "messages_append", "messages_list", "moments_build"} <= set(names)

    def test_no_schema_refers_to_itself(self) -> None:
        schemas = description()["components"]["schemas"]
        refers = {name: set(re.findall(r'schemas/(\w+)"', json.dumps(schema))) for name, schema in schemas.items()}
        left = dict(refers)
        while ends := [name for name, others in left.items() if not others & set(left)]:
            for name in ends:
                del left[name]
        assert left == {}

    def test_the_values_of_an_enum_become_constants_with_different_names(self) -> None:
        for name, schema in description()["components"]["schemas"].items():
            for field in [schema, *schema.get("properties", {}).values()]:
                constants = [re.sub(r"\W", "", str(value)).upper() for value in field.get("enum", ())]
                assert len(set(constants)) == len(constants), name

    def test_a_field_with_a_default_is_optional(self) -> None:
        for name, schema in description()["components"]["schemas"].items():
            if name.endswith("Request"):
                defaults = {field for field, told in schema["properties"].items() if "default" in told}
                assert not defaults & set(schema.get("required", ())), name


class TestKinds:
    """The schema depends on the key that requests it."""

    def test_user_id_is_required_for_a_service_key_and_optional_for_a_user_key(self, service: Api, as_ada: Api) -> None:
        nobodys = Api()
        about_nobody = {"usage_get", "shardretractions_list", "shardretractions_undo"}  # not about one person
        about_nobody |= {"prompts_list", "prompts_get", "promptversions_list", "promptversions_get"}
        assert service.get("usage").status_code == 200
        for api, is_required in ((service, True), (nobodys, True), (as_ada, False)):
            for path, method, call in calls(described(api)):
                named = [one.get("required", False) for one in call["parameters"] if one["name"] == "user_id"]
                if call["operationId"] in about_nobody or path.startswith(CHAT):  # its calls send a header
                    assert not any(named), f"{method} {path}"
                elif "{user_id}" not in path and "requestBody" not in call:
                    assert named == [is_required], f"{method} {path}"
            whole = described(api)
            body = whole["components"]["schemas"]["AppendInputRequest"]
            assert ("user_id" in body["required"]) == is_required
            assert "user_id" not in whole["components"]["schemas"]["ShardInputRequest"]["required"]
            undone = whole["paths"]["/api/v1/streams/{stream_id}/undo"]["post"]["requestBody"]
            assert undone.get("required", False) == is_required

    def test_requests_allow_no_additional_fields(self) -> None:
        for name, schema in description()["components"]["schemas"].items():
            if name.endswith("Request"):
                assert schema["additionalProperties"] is False, name


def test_an_export_can_be_requested_by_its_content_type(service: Api, ada: UserProfile) -> None:
    headers = {**service.headers, "Accept": "application/zip"}
    answer = service.client.get("/api/v1/users/ada/export", headers=headers)
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/zip")
    missing = service.client.get("/api/v1/users/nobody/export", headers=headers)
    assert (missing.status_code, missing["Content-Type"]) == (404, "application/json")
    assert missing.json()["errors"][0]["code"] == "not_found"
    refused = service.client.get("/api/v1/users/ada/export", headers={**service.headers, "Accept": "image/png"})
    assert refused.status_code == 406
    check("get", "/api/v1/users/ada/export", refused)


def test_pages_of_a_transcript_can_be_requested_without_a_view(service: Api, ada: UserProfile) -> None:
    talk(ada, 5)
    page = service.get("sessions/s1/messages", user_id="ada", after=2).json()
    assert [message["sequence"] for message in page["messages"]] == [3, 4]
    assert not page["has_more"]


def test_a_call_that_the_scope_does_not_allow_is_403(ada: UserProfile) -> None:
    reads = Api(ApiKey.objects.issue("reads", scope="read")[1])
    assert reads.post("sessions", user_id="ada", session_id="s").status_code == 403
    assert reads.get("retractions", user_id="ada").status_code == 403
