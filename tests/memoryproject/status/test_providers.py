"""Checks at the start whether providers accept their keys."""

import pytest
from pydantic import SecretStr
from pytest_django.fixtures import Settings

from memoryproject.status import watchdog
from memoryproject.status.site_state import record_refused_providers, refused_providers
from memoryproject.status.watchdog import ProviderChecks, refusals
from tests.support.openai_server import OpenAIServer, error
from tests.support.waiting import wait_until


def test_without_providers_nothing_is_refused() -> None:
    assert refusals() == []


def test_a_provider_that_accepts_its_key_gets_no_model_call(model_server: OpenAIServer) -> None:
    assert refusals() == []
    assert model_server.requests == []


@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_key_is_reported_by_its_setting(model_server: OpenAIServer, status: int) -> None:
    model_server.models = error(status)
    [told] = refusals()
    assert told == f"openai:gpt-4.1-mini answered with status {status}. Check ENGINE__API_KEY."
    assert "sk-marked" not in told


def test_a_key_that_is_not_a_valid_header_is_reported(model_server: OpenAIServer, settings: Settings) -> None:
    settings.ENGINE = settings.ENGINE.model_copy(update={"api_key": SecretStr("sk-markéd")})
    [told] = refusals()
    assert "Check ENGINE__API_KEY." in told and "mark" not in told


def test_an_endpoint_without_a_list_of_models_gets_a_minimal_call(embeddings_server: OpenAIServer) -> None:
    embeddings_server.models = error(404)
    assert refusals() == []
    assert [request["input"] for request in embeddings_server.requests] == [["Hello."]]
    embeddings_server.always(error(401))
    assert refusals() == ["openai:test-embedder answered with status 401. Check EMBEDDING__API_KEY."]


def test_an_unreachable_url_is_reported(settings: Settings) -> None:
    settings.CHAT = settings.CHAT.model_copy(update={"upstream_base_url": "http://127.0.0.1:1/v1"})
    [told] = refusals()
    assert told.endswith("Check CHAT__UPSTREAM_BASE_URL.")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_or_broken_provider_is_not_a_refusal(model_server: OpenAIServer, status: int) -> None:
    model_server.models = error(status)
    assert refusals() == []


@pytest.mark.django_db(transaction=True)
def test_a_refusal_is_stored_until_the_key_is_accepted(
    embeddings_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memoryproject.status.watchdog.RECHECK_SECONDS", 0.0)
    embeddings_server.models = error(401)
    checks = ProviderChecks()

    def noted() -> bool:
        checks.check()
        return bool(refused_providers())

    wait_until(noted)
    embeddings_server.models = error(400)
    wait_until(lambda: not noted())


@pytest.mark.django_db(transaction=True)
def test_a_result_that_arrives_while_an_earlier_one_is_being_recorded_is_not_lost(
    embeddings_server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = ProviderChecks()

    def record_after_a_newer_result(refused: list[str]) -> None:
        monkeypatch.setattr(watchdog, "record_refused_providers", record_refused_providers)
        embeddings_server.models = error(400)
        checks._ask()
        record_refused_providers(refused)

    monkeypatch.setattr(watchdog, "record_refused_providers", record_after_a_newer_result)
    embeddings_server.models = error(401)
    checks._ask()
    checks.check()
    assert refused_providers() == []
