"""Measuring a prompt by its probes: each version is asked with its own context, and nothing is stored."""

from collections.abc import Callable
from typing import Any

import pytest

from memory_extras.lab.models import Probe
from memory_extras.lab.probes.trial import try_probes
from memory_extras.lab.trials.try_prompt import try_prompt
from moments_app.context.input import LAYER_CACHE
from moments_app.models import MemoryStream, PromptResource, PromptVersion
from moments_app.sessions.digest import DigestSession
from moments_app.summaries import RollSummary
from sessions_app.models import Session, UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support import openai_server as behave
from tests.support.jobs import build, run
from tests.support.openai_server import Handler, OpenAIServer
from tests.support.streams import form, note
from tests.support.tables import everything
from tests.support.transcript import talk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming", "rolling")]

Purpose = PromptResource.Purpose
ZEBULON = [NewMessage("user", "Zebulon mended the boiler."), NewMessage("assistant", "Good man.")]


def version(purpose: str) -> PromptVersion:
    resource = PromptResource.objects.select_related("active_version").get(purpose=purpose)
    return PromptVersion(resource=resource, content="OTHER WORDS")


def probe(session: Session, expected: str = "Zebulon") -> Probe:
    return Probe.objects.create(
        user=session.user, session=session, question="Whom could one ask?", expected=expected, created_by="test"
    )


def only_by_other_words(handler: Handler, body: dict[str, Any]) -> None:
    """Answer with a fact only if the instructions are the new ones."""
    facts = ["event 0: Zebulon mended the boiler."] if "OTHER WORDS" in body["messages"][0]["content"] else []
    behave.memories({"stream": "session", "statements": facts})(handler, body)


@pytest.mark.slow
def test_a_probe_is_asked_with_the_context_of_each_version(ada: UserProfile, model_server: OpenAIServer) -> None:
    append(ada, "s1", ZEBULON)
    session = talk(ada, 190)
    probe(session)
    session.refresh_from_db()
    model_server.always(only_by_other_words)
    before = everything(but=["moments_app_enginecall"])
    trial = try_prompt(version(Purpose.MEMORY_EXTRACTION), session)
    [tried] = try_probes(trial, session)
    assert [measure and measure.is_met for measure in tried.measures] == [False, True]
    assert everything(but=["moments_app_enginecall"]) == before
    assert LAYER_CACHE._sessions.get(session.pk) is None


def begun(purpose: str, user: UserProfile) -> Session:
    return talk(user, {Purpose.MOMENT_BUILDER: 120, Purpose.ROLLING_SUMMARY: 30}.get(Purpose(purpose), 12))


DOING: dict[str, Callable[[Session], object]] = {
    Purpose.MOMENT_BUILDER: build,
    Purpose.ROLLING_SUMMARY: lambda session: run(RollSummary.name, session),
    Purpose.MEMORY_EXTRACTION: form,
    Purpose.SESSION_DIGEST: lambda session: run(DigestSession.name, session),
}


@pytest.mark.slow
@pytest.mark.parametrize("purpose", DOING)
@pytest.mark.parametrize("done_before", [False, True], ids=["waiting", "done"])
def test_probes_are_measured_for_every_purpose_and_nothing_is_stored(
    ada: UserProfile, model_server: OpenAIServer, purpose: str, done_before: bool
) -> None:
    session = begun(purpose, ada)
    probe(session)
    if done_before:
        DOING[purpose](session)
    session = Session.objects.get(pk=session.pk)
    before = everything(but=["moments_app_enginecall"])
    trial = try_prompt(version(purpose), session)
    assert trial.is_again == done_before
    [tried] = try_probes(trial, session)
    assert [(measure and measure.problem) for measure in tried.measures] == ["", ""]
    assert everything(but=["moments_app_enginecall"]) == before


@pytest.mark.slow
def test_a_trial_of_a_consolidation_asks_the_probes_of_its_person(ada: UserProfile, model_server: OpenAIServer) -> None:
    session = talk(ada, 2)
    probe(session, expected="Observation")
    MemoryStream.objects.ensure_for(session)
    stream = MemoryStream.objects.get(stream_type="user")
    for number in range(3):
        note(stream, f"Observation {number}.")
    before = everything(but=["moments_app_enginecall"])
    [tried] = try_probes(try_prompt(version(Purpose.STREAM_CONSOLIDATION), stream), stream)
    assert [measure and measure.is_met for measure in tried.measures] == [True, True]
    assert everything(but=["moments_app_enginecall"]) == before


def test_a_failing_engine_leaves_probes_unmeasured(ada: UserProfile, model_server: OpenAIServer) -> None:
    session = talk(ada, 12)
    probe(session)
    model_server.always(behave.error(500))
    [tried] = try_probes(try_prompt(version(Purpose.MEMORY_EXTRACTION), session), session)
    assert tried.measures == [None, None]
