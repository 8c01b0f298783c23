"""Trying a version of a prompt on a sample, and who may activate it."""

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from memory_extras.lab.models import PromptTrial
from memory_extras.lab.probes.save import draft_from, save_probe
from memory_extras.lab.trials.sample import sample_of
from moments_app.models import EngineCall, Moment, PromptResource, PromptVersion
from sessions_app.models import Event, Session, UserProfile
from tests.support import openai_server as behave
from tests.support.openai_server import OpenAIServer
from tests.support.operator import operator
from tests.support.pages import MAX_QUERIES, change_url, page, queries_of
from tests.support.transcript import talk

pytestmark = pytest.mark.django_db(transaction=True)


def url(name: str, prompt: PromptResource, *more: Any) -> str:
    return reverse(f"admin:moments_app_promptresource_{name}", args=[prompt.pk, *more])


def ask(client: Client, trial: PromptTrial, subject: str) -> str:
    """Return what the page shows for one subject of the sample."""
    asked = url("try_one", trial.version.resource, trial.pk)
    answer = client.post(asked, {"subject": subject}, headers={"HX-Request": "true"})
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.fixture
def second(prompt: PromptResource) -> PromptVersion:
    return prompt.add_version("OTHER WORDS", created_by="operator:eve", note="shorter")


@pytest.fixture
def sessions(transactional_db: None) -> list[Session]:
    """The latest sessions of three people, where the first has an earlier one and a probe."""
    talk(UserProfile.objects.ensure("ada"), 60, session_id="earlier")
    made = [talk(UserProfile.objects.ensure(name), 60, session_id=f"of-{name}") for name in ("ada", "bo", "cy")]
    draft = draft_from(made[0], 0)
    assert draft
    save_probe(made[0].user, draft, created_by="test")
    return made


def test_a_sample_has_the_latest_session_of_each_person_with_probed_ones_first(
    prompt: PromptResource, sessions: list[Session]
) -> None:
    ada, bo, cy = (session.pk for session in sessions)
    assert sample_of(prompt, 10) == [ada, cy, bo]
    assert sample_of(prompt, 2) == [ada, cy]


@pytest.mark.slow
def test_a_version_is_tried_on_each_subject_and_the_figures_are_stored(
    root: Client, prompt: PromptResource, second: PromptVersion, sessions: list[Session], model_server: OpenAIServer
) -> None:
    answer = root.post(url("sample", prompt, 2), {"size": 3})
    shown = page(root, answer.headers["Location"])
    trial = PromptTrial.objects.get()
    subjects = re.findall(r'name="subject" value="(\d+)"', shown)
    assert len(subjects) == 3 and "0 of 3 trials are done." in shown
    came = [
        root.post(url("try_one", prompt, trial.pk), {"subject": one}, headers={"HX-Request": "true"})
        for one in subjects
    ]
    texts = [one.content.decode() for one in came]
    assert "3 of 3" not in texts[0] and "All 3 trials are done" in texts[2] and 'hx-swap-oob="true"' in texts[2]
    assert (
        "All trials of this sample are done."
        in root.post(
            url("try_one", prompt, trial.pk), {"subject": subjects[0]}, headers={"HX-Request": "true"}
        ).content.decode()
    )
    trial.refresh_from_db()
    assert (trial.tried, trial.size, trial.requested_by) == (3, 3, "operator:root")
    before, after = trial.sides.all()
    assert (before.version_id, after.version) == (prompt.active_version_id, second)
    for side in (before, after):
        assert side.calls == 3 and side.tokens > 0 and side.failed == 0 and side.probes == 1
    assert not Moment.objects.exists() and EngineCall.objects.filter(purpose__startswith="try ").count() == 8
    assert {event.user_pk for event in Event.objects.filter(type="user_read", payload__page__endswith="try one")} == {
        session.user_id for session in sessions
    }
    assert "tried" in page(root, change_url(prompt)) and "3 of 3 trials done" in page(root, change_url(prompt))
    assert PromptVersion.objects.get(pk=second.pk).is_tried
    assert "This version was tried on a sample" in page(root, change_url(prompt))
    assert "All trials are done." in page(root, answer.headers["Location"])
    assert queries_of(root, answer.headers["Location"]) <= MAX_QUERIES


@pytest.mark.slow
def test_failures_are_counted_and_do_not_stop_the_trial(
    root: Client, prompt: PromptResource, second: PromptVersion, sessions: list[Session], model_server: OpenAIServer
) -> None:
    model_server.always(behave.content("no JSON"))
    root.post(url("sample", prompt, 2), {"size": 3})
    trial = PromptTrial.objects.get()
    assert root.post(url("try_one", prompt, trial.pk), {"subject": sessions[0].pk}).status_code == 302
    assert [side.failed for side in trial.sides.all()] == [1, 1]


def test_an_operator_who_may_not_read_a_person_cannot_try(
    prompt: PromptResource, second: PromptVersion, sessions: list[Session]
) -> None:
    viewer = operator(group="viewers")
    assert viewer.post(url("sample", prompt, 2), {"size": 3}).status_code == 403
    assert not PromptTrial.objects.exists()
