"""The profile under its headings."""

from datetime import UTC, datetime, timedelta

from moments_app.engines.calls.moments import Journey, MomentAnswer, MomentRequest
from moments_app.engines.calls.profile import Profile
from moments_app.engines.extractive import ExtractiveEngine
from moments_app.engines.extractive.profile import PROFILE_MAX
from moments_app.engines.transcript import Turn

MARCH = datetime(2026, 3, 4, 8, tzinfo=UTC)
SAID = (
    "I live in Turin with my cat Oli.",
    "You sound like my mother.",
    "My brother Mats is an electrician.",
    "I'm allergic to hazelnuts.",
    "I work as a nurse in a children's hospital.",
    "I love painting, and I love it a lot.",
    "I'm going to run a marathon next month.",
    "I'm learning Portuguese.",
    "That's so kind of you!",
    "It brings me so much joy.",
)


def built(*said: str, profile: Profile | None = None, at: datetime = MARCH) -> MomentAnswer:
    turns = [Turn(n, "user", text, at + timedelta(minutes=n)) for n, text in enumerate(said)]
    return ExtractiveEngine().build_moments(MomentRequest(turns, profile or Profile(), Journey(), ""))


def test_statements_stand_under_headings_as_they_were_said() -> None:
    assert built(*SAID).user_summary_update.split("\n") == [
        "Who they are:",
        "- User: I live in Turin with my cat Oli. (2026-03-04)",
        "People and pets:",
        "- User: My brother Mats is an electrician. (2026-03-04)",
        "Work and study:",
        "- User: I work as a nurse in a children's hospital. (2026-03-04)",
        "- User: I'm learning Portuguese. (2026-03-04)",
        "Health:",
        "- User: I'm allergic to hazelnuts. (2026-03-04)",
        "Likes and dislikes:",
        "- User: I love painting, and I love it a lot. (2026-03-04)",
        "Plans:",
        "- User: I'm going to run a marathon next month [April 2026]. (2026-03-04)",
    ]


def test_interests_are_what_a_person_would_choose() -> None:
    answer = built(*SAID, "I was throwing on some music and creating a safe place.", "My friend Mel is so cute.")
    assert answer.new_interests == ["painting"]
    assert built("I love dancing.", "I love all dances.", profile=Profile(interests=["dance"])).new_interests == []
    assert not {"mel", "cute", "ve", "creating a safe", "throwing on some"} & set(answer.new_preferred_topics)


def test_plans_of_long_ago_are_dropped_and_what_lasts_stays() -> None:
    before = built(*SAID)
    later = built(
        "I bought a kayak in Genoa.", profile=Profile(before.user_summary_update), at=MARCH + timedelta(days=200)
    )
    assert "marathon" not in later.user_summary_update and "hazelnuts" in later.user_summary_update


def test_what_somebody_does_by_habit_is_no_plan() -> None:
    assert "Plans:" in built("I am going to hike in Peru.").user_summary_update
    assert "Plans:" not in built("I started going to boot camps in Turin.").user_summary_update


def test_what_an_operator_wrote_stays_and_so_do_lines_of_earlier_versions() -> None:
    text = "Nora is a potter.\nAnswer her briefly.\nHealth:\n- Nora is diabetic (2025-01-01)"
    told = built("I'm allergic to hazelnuts.", profile=Profile(text)).user_summary_update
    assert told == f"{text}\n- User: I'm allergic to hazelnuts. (2026-03-04)"


def test_it_is_bounded_and_the_same_again() -> None:
    many = [f"My cousin Ida{n} moved to street number {n} of Turin." for n in range(40)]
    once = built(*SAID, *many).user_summary_update
    assert len(once) <= PROFILE_MAX and "hazelnuts" in once
    assert built(*SAID, *many, profile=Profile(once)).user_summary_update == once


def test_lines_without_a_date_are_an_operator_s_and_stay() -> None:
    text = "Plans:\n- Never call Nora before noon\n- Nora wants to sell her boat (2020-01-01)"
    many = [f"My cousin Ida{n} moved to street number {n} of Turin." for n in range(40)]
    told = built(*SAID, *many, profile=Profile(text)).user_summary_update
    assert "- Never call Nora before noon" in told and "her boat" not in told


def test_who_somebody_says_they_are_comes_first_and_what_they_ask_for_says_nothing_of_them() -> None:
    said = built("Let me know.", "I'm Nora, I make ceramics in Gothenburg and I have a small shop.")
    assert said.user_summary_update.split("\n") == [
        "Who they are:",
        "- User: I'm Nora, I make ceramics in Gothenburg and I have a small shop. (2026-03-04)",
    ]
