"""Trying a prompt over REST."""

from typing import Any

import pytest

from moments_app.models import EngineCall, MemoryStream
from sessions_app.models import ApiKey, UserProfile
from tests.support import openai_server as behave
from tests.support.api import Api
from tests.support.openai_server import OpenAIServer
from tests.support.streams import form, note
from tests.support.tables import everything
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)

BUILDER = "prompts/moment-builder"


def code_of(answer: Any) -> tuple[int, str]:
    return answer.status_code, answer.json()["errors"][0]["code"]


def test_row_18_a_trial_needs_a_service_key_with_scope_admin(as_ada: Api) -> None:
    for api in (Api(ApiKey.objects.issue("writer", scope="write")[1]), as_ada):
        assert api.post(f"{BUILDER}/try", version=1, session_id="s1").status_code == 403


@pytest.mark.slow
def test_a_text_is_tried_next_to_the_active_version_and_nothing_is_stored(
    service: Api, ada: UserProfile, bo: UserProfile, model_server: OpenAIServer
) -> None:
    talk(ada, 120)
    asked = {"user_id": "ada", "session_id": "s1", "content": "OTHER WORDS"}
    noted = ["moments_app_enginecall", "sessions_app_apikey", "sessions_app_dailyusage", "sessions_app_userprofile"]
    before = everything(but=noted)
    tried = service.post(f"{BUILDER}/try", asked).json()
    assert everything(but=noted) == before
    assert (tried["process"], tried["is_again"]) == ("build_moments", False) and tried["given"].startswith("turns 0")
    assert [(side["version"], side["is_active"], side["error"]) for side in tried["sides"]] == [
        (1, True, ""),
        (None, False, ""),
    ]
    assert all("They spoke of" in str(side["parts"]) and side["tokens"] for side in tried["sides"])
    assert EngineCall.objects.filter(purpose="try moment-builder").count() == 2
    for other in ({"user_id": "bo"}, {"session_id": "s2"}, {"user_id": "nobody"}):
        assert service.post(f"{BUILDER}/try", asked | other).status_code == 404
    assert code_of(service.post(f"{BUILDER}/try", asked | {"version": 1})) == (400, "contradictory")
    assert service.post("prompts/session-digest/try", user_id="bo", session_id="s1", version=1).status_code == 404


def test_a_consolidation_can_be_tried_on_a_stream_of_the_person(
    service: Api, ada: UserProfile, model_server: OpenAIServer
) -> None:
    stream = MemoryStream.objects.ensure_of_person(ada, "default")
    note(stream, "Likes kilns.")
    asked = {"user_id": "ada", "stream_id": str(stream.stream_id), "version": 1}
    tried = service.post("prompts/stream-consolidation/try", asked).json()
    assert tried["given"] == "1 observations" and [side["is_active"] for side in tried["sides"]] == [True]
    assert code_of(service.post("prompts/memory-extraction/try", asked)) == (400, "contradictory")
    model_server.always(behave.error(500))
    [failed] = service.post("prompts/stream-consolidation/try", asked).json()["sides"]
    assert "500" in failed["error"] and failed["parts"] == []


def test_the_calls_of_a_trial_count_toward_the_limits_of_its_key(
    service: Api, ada: UserProfile, model_server: OpenAIServer
) -> None:
    talk(ada, 120)
    tried = service.post(f"{BUILDER}/try", user_id="ada", session_id="s1", content="OTHER WORDS")
    assert tried.status_code == 200
    assert service.get("usage").json()["key"]["model_calls"]["used"] == 2


@pytest.mark.usefixtures("forming")
def test_a_digest_can_be_tried_if_all_its_turns_are_in_drafts_of_moments(
    service: Api, ada: UserProfile, model_server: OpenAIServer
) -> None:
    session = talk(ada, 20)
    form(session)
    tried = service.post("prompts/session-digest/try", user_id="ada", session_id="s1", content="OTHER WORDS")
    assert tried.status_code == 200 and tried.json()["given"] == "turns 0–19"
