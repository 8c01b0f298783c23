"""The user layer of a context is one text with a line per item, and states nothing twice."""

from collections.abc import Sequence
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from moments_app.context import input as scenes
from moments_app.context.input import Item, read_input
from moments_app.context.layers.streams import user
from moments_app.models import MemoryStream
from moments_app.provenance.correct import correct, replacement_request
from sessions_app.models import Session, UserProfile
from tests.support.jobs import build
from tests.support.streams import fold, form, note
from tests.support.transcript import START, talk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("forming")]


@pytest.fixture
def session(ada: UserProfile) -> Session:
    return talk(ada, 12, text="I love kilns and I live in Turin. My dog is called Rex.")


@pytest.fixture
def stream(session: Session) -> MemoryStream:
    """The user stream of Ada."""
    MemoryStream.objects.ensure_for(session)
    return MemoryStream.objects.get(stream_type="user")


def items(session: Session) -> Sequence[Item]:
    session.user.refresh_from_db()
    source = read_input(session.user, session.session_id, "", applied=3_000, recall=None)
    assert source is not None
    return user(source)


def lines(session: Session) -> list[str]:
    """Return the texts of the layer's items."""
    return [item.text for item in items(session)]


def known(user: UserProfile, **fields: Any) -> None:
    UserProfile.objects.filter(pk=user.pk).update(**fields)


def test_text_of_both_profile_and_stream_is_shown_once(session: Session, stream: MemoryStream) -> None:
    build(session, lag=2)
    form(session)
    session.user.refresh_from_db()
    assert "User: I love kilns and I live in Turin." in session.user.summary
    for _ in range(2):  # waiting, then consolidated
        text = "\n".join(lines(session))
        assert text.count("User: I love kilns and I live in Turin.") == 1
        assert text.count("User: My dog is called Rex.") == 1
        fold(stream)


def test_a_corrected_statement_is_shown_once_before_its_consolidation(session: Session, stream: MemoryStream) -> None:
    dog = note(stream, "User's dog is called Rex.", formed_at=START)
    fold(stream)
    dog.refresh_from_db()
    correct(dog, replacement_request("User's dog is called Max."), requested_by="test")
    assert [line for line in lines(session) if "dog" in line] == ["[2026-03-02] User's dog is called Max."]


def test_profile_sentences_of_the_stream_are_omitted_and_others_stay(session: Session, stream: MemoryStream) -> None:
    known(
        session.user,
        summary="Ada is a potter. She LIVES in Turin! Works at night.\n- I have two cats (2026-03-01)",
        interests=["kilns"],
        preferred_topics=["glazes"],
    )
    note(stream, "She lives in Turin, near the river.", formed_at=START)
    note(stream, "User: I have two cats", formed_at=START)
    assert lines(session) == [
        "Ada is a potter.",
        "She lives in Turin, near the river. (2026-03-02)",
        "User: I have two cats (2026-03-02)",
        "Works at night.",
        "Interests: kilns",
        "Preferred topics: glazes",
    ]


def test_a_similar_profile_line_is_shown_only_if_it_says_more(session: Session, stream: MemoryStream) -> None:
    kept = [
        "User doesn't teach her daughter to paint (2026-03-02)",  # negated
        "User lives in Turin (2026-03-02)",  # contains a value
        "User is planning an art show with Iris in May (2026-03-02)",  # names another person
        "User paints (2026-03-02)",  # says almost nothing
    ]
    left_out = [
        "Lately, User has been painting as an evening hobby (2026-03-02)",
        "Art is User's passion (2026-03-02)",
        "User is planning an art show in May (2026-03-02)",
    ]
    known(session.user, summary="\n".join(f"- {line}" for line in [*kept, *left_out]))
    noticed = [
        "User started painting in the evening, a hobby that User teaches her daughter.",
        "User is still following her passion for art.",
        "User is planning an art show on 9 May.",
        "User moved to Turin and lives there again, after Rome.",
        "User teaches her daughter to paint.",
    ]
    for told in noticed:
        note(stream, told, formed_at=START)
    assert {line for line in lines(session) if not line.startswith(tuple(noticed))} == set(kept)


def test_identity_precedes_passing_details_wherever_both_were_noted(session: Session, stream: MemoryStream) -> None:
    known(session.user, summary="Ada plans to paint the shed on Sunday.\nAda wants to see the sea.\nAda is vegan.")
    for told in ("User's name is Ada Berg.", "User works as a potter.", "Ada's son is called Tim."):
        note(stream, told, formed_at=START)
    stream.pinned_content = "Answer in two sentences."
    stream.save()
    assert [line.partition(" (")[0] for line in lines(session)] == [
        "Answer in two sentences.",
        "User's name is Ada Berg.",
        "User works as a potter.",
        "Ada's son is called Tim.",
        "Ada is vegan.",
        "Ada plans to paint the shed on Sunday.",
        "Ada wants to see the sea.",
    ]
    assert [item.is_certain for item in items(session)] == [True] * 5 + [False] * 2


def test_a_heading_is_omitted_with_all_lines_below_it(session: Session, stream: MemoryStream) -> None:
    known(session.user, summary="In the person's own words:\n- I have two cats. (2026-03-01)")
    note(stream, "User: I have two cats.", formed_at=START)
    assert lines(session) == ["User: I have two cats. (2026-03-02)"]


def test_a_list_line_has_no_heading_unless_it_is_too_short_alone(session: Session, stream: MemoryStream) -> None:
    lists = "Health:\n- She is allergic to hazelnuts (2026-03-01)\nAllergies:\n- hazelnuts\n- birch pollen (2026-03-01)"
    known(session.user, summary=lists)
    assert lines(session)[:3] == [
        "She is allergic to hazelnuts (2026-03-01)",
        "Allergies: hazelnuts",
        "Allergies: birch pollen (2026-03-01)",
    ]


def test_a_short_sentence_is_not_omitted_for_its_words_alone(session: Session, stream: MemoryStream) -> None:
    known(session.user, summary="Ada. Vegan.\nAllergic to: nuts")
    note(stream, "Ada sold her vegan shop.", formed_at=START)
    note(stream, "Nuts", formed_at=START)
    assert {"Ada.", "Vegan.", "Allergic to: nuts"} < set(lines(session))


def test_sentences_in_scripts_without_spaces_are_distinguished(session: Session, stream: MemoryStream) -> None:
    known(session.user, summary="我住在都灵。我有两只猫。")
    note(stream, "User: 我住在都灵。", formed_at=START)
    assert lines(session) == ["User: 我住在都灵。 (2026-03-02)", "我有两只猫。"]


def test_a_line_without_spaces_needs_no_heading(session: Session, stream: MemoryStream) -> None:
    known(session.user, summary="In their own words:\n- User: 我女儿叫小雨，今年六岁 (2026-03-04)")
    assert lines(session) == ["User: 我女儿叫小雨，今年六岁 (2026-03-04)"]


def test_each_line_of_a_text_is_an_item(session: Session, stream: MemoryStream) -> None:
    fields = {"pinned_content": "One.\n\nTwo.", "consolidated_content": "Three.\r\nFour."}
    MemoryStream.objects.filter(pk=stream.pk).update(**fields)
    assert [line.strip() for line in lines(session)] == ["One.", "Two.", "Three.", "Four."]


def test_the_newest_waiting_items_and_all_pinned_ones_are_shown(
    session: Session, stream: MemoryStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenes, "MAX_OBSERVATIONS", 3)
    note(stream, "Pinned.", is_pinned=True, formed_at=START)
    for number in range(6):
        note(stream, f"Observation {number}.")
    with CaptureQueriesContext(connection) as before:
        assert [line.split(" (")[0] for line in lines(session)] == [
            "Pinned.",
            "Observation 3.",
            "Observation 4.",
            "Observation 5.",
        ]
    for number in range(6, 30):
        note(stream, f"Observation {number}.")
    with CaptureQueriesContext(connection) as after:
        lines(session)
    assert len(after) == len(before)
