"""The demonstration, on a site that already remembers its conversation."""

import pytest
from pytest_django.fixtures import Settings

from memoryproject.demo import Demonstration
from moments_app.models import Moment
from sessions_app.models import ApiKey, Session, UserProfile
from tests.support.live import live_site
from tests.support.transcript import START

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def printed(settings: Settings) -> list[str]:
    """Return the printed lines. The demonstration's jobs are not run."""
    settings.MOMENT_BUILDER = settings.MOMENT_BUILDER.model_copy(update={"enabled": False})
    nora = UserProfile.objects.ensure("demo-nora")
    nora.summary = "User keeps bees. " * 50
    nora.save(update_fields=["summary"])
    Moment.objects.create(
        user=nora,
        source_session=Session.objects.create(user=nora, session_id="demo-conversation"),
        key="hallands-ömsesidiga-20260318",
        name="hallands-ömsesidiga",
        summary="An offer for the shop.",
        starts_at=START,
        ends_at=START,
        first_sequence=0,
        last_sequence=1,
        engine="test",
    )
    lines: list[str] = []
    with live_site() as url:
        Demonstration(url, ApiKey.objects.issue("demonstration", scope="write")[1], lines.append).run()
    return lines


@pytest.mark.slow
def test_the_demonstration_shows_moment_keys_with_letters_of_any_language(printed: list[str]) -> None:
    assert any("hallands-ömsesidiga-20260318" in line for line in printed)


@pytest.mark.slow
def test_the_context_of_a_new_session_contains_the_answer(printed: list[str]) -> None:
    asked = next(n for n, line in enumerate(printed) if "In a new conversation" in line)
    assert any("11,800 kronor a month" in line for line in printed[asked + 1 :])


@pytest.mark.slow
def test_a_long_text_is_cut_between_words_with_an_ellipsis(printed: list[str]) -> None:
    [profile] = [line for line in printed if "User keeps bees" in line]
    assert profile.endswith(("User …", "keeps …", "bees. …"))
