"""Prompts over REST: read, written and activated with scope admin, within the application of the key."""

from typing import Any

import pytest
from pytest_django.fixtures import Settings

from moments_app.models import PromptResource
from moments_app.prompts import MOMENT_BUILDER_URI, SESSION_DIGEST_URI
from sessions_app.models import ApiKey, Application, Event
from sessions_app.models.application import DEFAULT
from tests.support.api import Api
from tests.support.operator import operator
from tests.support.pages import change_url

pytestmark = pytest.mark.django_db(transaction=True)

BUILDER = "prompts/moment-builder"


def code_of(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["errors"][0]["code"]


def in_force(uri: str = MOMENT_BUILDER_URI, application: int = DEFAULT) -> str:
    return PromptResource.objects.version_in_force(uri, application).content


def test_writing_activating_and_rolling_back_a_version_are_recorded(service: Api) -> None:
    shipped = service.get(BUILDER).json()
    assert (shipped["active_version"], shipped["newest_version"], shipped["is_site"]) == (1, 1, True)
    written = service.post(f"{BUILDER}/versions", content="Be brief.\r\nBe exact.", note="shorter", after=1)
    assert written.status_code == 201 and written.json()["content"] == "Be brief.\nBe exact."
    assert (written.json()["version"], written.json()["is_active"], in_force()) == (2, False, shipped["content"])
    activated = [service.post(f"{BUILDER}/activate", version=2).json() for _ in range(2)]
    assert activated[0] == activated[1] and in_force() == "Be brief.\nBe exact."
    assert (activated[0]["active_version"], activated[0]["previous_version"]) == (2, 1)
    assert service.post(f"{BUILDER}/activate", version=activated[0]["previous_version"]).status_code == 200
    assert in_force() == shipped["content"]
    rows = service.get(f"{BUILDER}/versions").json()
    assert [(row["version"], row["note"], row["is_active"]) for row in rows["versions"][:1]] == [(2, "shorter", False)]
    assert (rows["total"], rows["versions"][0]["is_tried"]) == (2, False)
    assert service.get(f"{BUILDER}/versions/2").json()["created_by"].startswith("key:")
    events = Event.objects.filter(type="prompt_activated").order_by("id")
    assert [(event.actor[:4], event.payload) for event in events] == [
        ("key:", {"uri": MOMENT_BUILDER_URI, "version": number}) for number in (2, 1)
    ]
    assert "shorter" in operator().get(change_url(PromptResource.objects.get(uri=MOMENT_BUILDER_URI))).content.decode()


def test_a_custom_prompt_can_be_added_and_is_used(service: Api) -> None:
    made = service.post("prompts", name="memory-policy", content="It is data.", title="Policy", activate=True)
    assert made.status_code == 201
    assert (made.json()["title"], made.json()["active_version"], made.json()["is_site"]) == ("Policy", 1, True)
    assert code_of(service.post("prompts", name="memory-policy", content="Twice.")) == (409, "already_there")
    listed = service.get("prompts", purpose="memory-policy").json()
    assert [one["name"] for one in listed["prompts"]] == ["memory-policy"]
    assert service.get("prompts").json()["total"] == 7
    assert code_of(service.post("prompts", name="house-rules", content="What for?")) == (400, "contradictory")
    longest = "x" * 241
    made = service.post("prompts", name=longest, content="Long.", purpose="memory-policy")
    assert made.status_code == 201 and service.get(f"prompts/{longest}").status_code == 200
    assert code_of(service.post("prompts", name=f"{longest}x", content="Longer.")) == (400, "max_length")


@pytest.mark.parametrize(
    ("path", "body", "refused"),
    [
        ("versions", {"content": " \n "}, (400, "blank")),
        ("versions", {"content": "x" * 100_001}, (400, "max_length")),
        ("versions", {"content": "a\0b"}, (400, "null_characters_not_allowed")),
        ("versions", {"content": "Mine.", "after": 0}, (409, "newer_version")),
        ("activate", {"version": 9}, (404, "not_found")),
        ("activate", {}, (400, "required")),
    ],
)
def test_an_invalid_version_is_rejected_and_changes_nothing(
    service: Api, path: str, body: dict[str, Any], refused: tuple[int, str]
) -> None:
    assert code_of(service.post(f"{BUILDER}/{path}", body)) == refused
    assert PromptResource.objects.get(uri=MOMENT_BUILDER_URI).versions.count() == 1
    assert service.get(f"{BUILDER}/versions/99999999999999999999").status_code == 404
    assert service.get("prompts/unknown").status_code == 404


def test_row_18_prompts_need_a_service_key_with_scope_admin(as_ada: Api) -> None:
    writer = Api(ApiKey.objects.issue("writer", scope="write")[1])
    for api in (writer, as_ada):
        assert api.get("prompts").status_code == api.get(BUILDER).status_code == 403
        assert api.post("prompts", name="memory-policy", content="x").status_code == 403
        assert api.post(f"{BUILDER}/versions", content="x").status_code == 403
        assert api.post(f"{BUILDER}/activate", version=1).status_code == 403
    assert Api().get("prompts").status_code == 401
    assert PromptResource.objects.get(uri=MOMENT_BUILDER_URI).versions.count() == 1


def test_row_9_an_application_can_change_its_own_prompts_and_read_site_wide_ones(service: Api) -> None:
    other = Application.objects.create(name="other").pk
    there = Api(ApiKey.objects.issue("other", application=other, scope="admin")[1])
    shipped = in_force()
    assert code_of(service.post(f"{BUILDER}/versions", content="For all.")) == (409, "prompt_of_site")
    assert code_of(service.post(f"{BUILDER}/activate", version=1)) == (409, "prompt_of_site")
    made = service.post("prompts", name="moment-builder", content="Ours alone.").json()
    assert (made["is_site"], made["active_version"], made["purpose"]) == (False, None, "moment-builder")
    assert in_force() == shipped
    service.post(f"{BUILDER}/activate", version=1)
    assert (in_force(), in_force(application=other)) == ("Ours alone.", shipped)
    assert there.get(BUILDER).json()["content"] == shipped and service.get(BUILDER).json()["content"] == "Ours alone."
    assert [one["is_site"] for one in service.get("prompts", purpose="moment-builder").json()["prompts"]] == [False]
    assert "Ours alone." not in there.get(f"{BUILDER}/versions").content.decode()
    assert there.get(f"{BUILDER}/versions").json()["versions"][0]["note"] == "Shipped with the product"
    assert list(Event.objects.filter(type="prompt_activated").values_list("application", flat=True)) == [DEFAULT]


def test_with_approval_a_key_writes_and_rolls_back_and_an_operator_activates(service: Api, settings: Settings) -> None:
    settings.PROMPT_APPROVAL = "second"
    digest = "prompts/session-digest"
    refused = service.post(f"{digest}/versions", content="Shorter.", activate=True)
    assert code_of(refused) == (409, "not_approved")
    assert service.get(f"{digest}/versions").json()["total"] == 1
    service.post(f"{digest}/versions", content="Shorter.")
    assert code_of(service.post(f"{digest}/activate", version=2)) == (409, "not_approved")
    prompt = PromptResource.objects.get(uri=SESSION_DIGEST_URI)
    operator().post(f"{change_url(prompt).removesuffix('change/')}activate/2/")
    assert in_force(SESSION_DIGEST_URI) == "Shorter."
    assert service.post(f"{digest}/activate", version=1).status_code == 200
