"""An estimate of a large run before it starts."""

from decimal import Decimal

import pytest
from django.core.management import CommandError, call_command
from pytest_django.fixtures import Settings

from moments_app.models import EngineCall, Job
from moments_app.reports.cost import Estimate, estimate
from moments_app.sessions.settle import Settle
from sessions_app.models import Session, UserProfile
from tests.support.commands import printed
from tests.support.jobs import work_off
from tests.support.openai_server import OpenAIServer
from tests.support.transcript import talk

CONSOLIDATION = "stream-consolidation"

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming", "rolling")]


def calls(*parts: Estimate) -> dict[str, int]:
    return {part.purpose: part.calls for part in parts}


def test_an_empty_site_has_an_empty_estimate(db: None) -> None:
    assert not any(part.calls or part.input_tokens for part in estimate())


@pytest.mark.slow
def test_the_maximum_of_calls_for_settling_is_estimated(ada: UserProfile, model_server: OpenAIServer) -> None:
    talk(ada, 20)
    talk(ada, 60, session_id="s2")
    Job.objects.all().delete()
    told = calls(*estimate())
    for session in Session.objects.all():
        Job.objects.request(Settle.name, session, requested_by="test")
    work_off()
    made = {purpose: EngineCall.objects.without_parts().filter(purpose=purpose).count() for purpose in told}
    assert abs(made.pop(CONSOLIDATION) - told[CONSOLIDATION]) <= 2  # depends on how much is worth keeping
    assert made["combined"] == 1  # shared by the sessions of a person
    assert all(told[purpose] >= count for purpose, count in made.items())
    assert calls(*estimate()) == dict.fromkeys(told, 0)


def test_the_estimate_for_everything_includes_calls_during_conversations(
    ada: UserProfile, embeddings_server: OpenAIServer, settings: Settings
) -> None:
    talk(ada, 20)
    talk(ada, 60, session_id="s2")
    settings.EMBEDDING = settings.EMBEDDING.model_copy(update={"batch_size": 100})
    waiting, all_of_it = calls(*estimate()), calls(*estimate(everything=True))
    assert (waiting["embedding"], all_of_it["embedding"]) == (6, 44)  # a call per round, two per session for memories
    assert (waiting["rolling-summary"], all_of_it["rolling-summary"]) == (0, 36)
    alike = waiting.keys() - {"embedding", "rolling-summary"}
    assert {purpose: waiting[purpose] for purpose in alike} == {purpose: all_of_it[purpose] for purpose in alike}


def test_queries_are_estimated_by_their_past_number(ada: UserProfile, settings: Settings) -> None:
    talk(ada, 20)
    assert "recall-query" not in calls(*estimate())
    for _ in range(5):
        EngineCall.objects.create(purpose="recall-query", engine="x", ok=True, latency_ms=1)
    assert calls(*estimate(everything=True))["recall-query"] == 5


def test_a_window_larger_than_a_call_takes_several_calls(ada: UserProfile, settings: Settings) -> None:
    settings.MOMENT_BUILDER = settings.MOMENT_BUILDER.model_copy(update={"max_input_tokens": 500})
    session = talk(ada, 100)
    assert calls(*estimate())["moment-builder"] == -(-session.total_tokens // 500)


def test_costs_are_estimated_if_prices_are_known(
    ada: UserProfile, model_server: OpenAIServer, settings: Settings
) -> None:
    talk(ada, 20)
    assert estimate()[0].usd is None
    settings.ENGINE = settings.ENGINE.model_copy(update={"prices": {"gpt-4.1-mini": (1.0, 2.0)}})
    part = estimate()[0]
    assert part.usd == Decimal(part.input_tokens + 2 * part.output_tokens) / 1_000_000


def test_the_command_estimates_by_person(ada: UserProfile, bo: UserProfile) -> None:
    talk(ada, 20)
    assert "moment-builder by extractive: 0 calls" in printed("estimate", user="bo")
    out = printed("estimate", everything=True)
    assert "moment-builder by extractive: 1 calls" in out and "price unknown" not in out
    with pytest.raises(CommandError, match="no user 'nobody'"):
        call_command("estimate", user="nobody")
