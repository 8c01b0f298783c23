"""The lines of a profile: they follow its text, whoever changes that, and say what they were made of."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from moments_app.engines.calls.profile import lines_of, text_of
from moments_app.models import Moment, ProfileLine
from moments_app.moments.edit_line import LineMoved, edit_line, restore_line
from moments_app.provenance.retract import retract
from moments_app.provenance.undo import undo_retraction
from sessions_app.models import Session, UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support.api import Api
from tests.support.jobs import build, work_off
from tests.support.transcript import START

pytestmark = pytest.mark.django_db(transaction=True)

SAID = [
    "I'm allergic to hazelnuts.",
    "I work as a nurse in Bergen.",
    "My sister Marla lives in Lisbon.",
    "I have a dog named Pepper.",
]
PROFILES = [
    "",
    "She is kind. She sails.  Often!",
    "Who they are:\n- a nurse (2026-03-02)\nHealth:\n- allergic\nWritten by hand.",
    "- an item\n- another",
    "A line with a colon:\nand another: yes.",
]


@pytest.fixture
def session(ada: UserProfile) -> Session:
    """Ada says four things of herself, and the extractive engine builds."""
    said = [NewMessage("user", text, created_at=START) for text in SAID]
    session = append(ada, "s1", said).session
    build(session, lag=0)
    return session


def standing() -> list[ProfileLine]:
    return list(ProfileLine.objects.standing().in_order())


def summary(user: UserProfile) -> str:
    return UserProfile.objects.get(pk=user.pk).summary


def line_about(word: str) -> ProfileLine:
    return next(line for line in standing() if word in line.text)


@pytest.mark.parametrize("text", PROFILES)
def test_a_text_is_its_lines(text: str) -> None:
    assert text_of(lines_of(text)) == text


def test_each_line_says_which_turn_it_comes_from(session: Session, ada: UserProfile) -> None:
    turns = dict(session.messages.turns().values_list("pk", "content"))
    lines = standing()
    assert len(lines) == len(SAID) and text_of(lines_of(summary(ada))) == summary(ada)
    for line in lines:
        [source] = line.source_message_ids
        assert set(line.text.split()[2:5]) & set(turns[source].split())
        assert line.heading and line.engine == "extractive" and line.actor.startswith("job:")


def test_a_line_stays_the_same_when_others_change(session: Session, ada: UserProfile, service: Api) -> None:
    before = {line.text: line.pk for line in standing()}
    kept = summary(ada).replace(line_about("Pepper").text, "- Has two cats.")
    assert service.patch("users/ada", summary=kept).status_code == 200
    after = {line.text: line.pk for line in standing()}
    assert {text for text in before if before[text] == after.get(text)} == before.keys() & after.keys()
    ended = ProfileLine.objects.exclude(ended_at=None).get()
    assert "Pepper" in ended.text and ended.end_reason == "by hand" and ended.ended_by.startswith("key:")
    assert line_about("cats").source_message_ids == []


def test_row_10_a_retracted_turn_takes_the_line_in_which_a_word_was_changed(session: Session, ada: UserProfile) -> None:
    old = line_about("Pepper")
    ada.merge(summary=summary(ada).replace("Pepper", "Peppa"), interests=[], preferred_topics=[], actor="operator:eve")
    new, old = line_about("Peppa"), ProfileLine.objects.get(pk=old.pk)
    assert new.source_message_ids == old.source_message_ids and old.replaced_by == new
    retract(session, [3], reason="mistaken", requested_by="test")
    assert "Pepp" not in summary(ada) and len(standing()) == 3


@pytest.mark.slow
def test_row_10_a_retracted_turn_takes_the_line_that_rests_on_it_and_no_other(
    session: Session, ada: UserProfile
) -> None:
    before = list(ProfileLine.objects.order_by("pk").values())
    text = summary(ada)
    retraction = retract(session, [3], reason="mistaken", requested_by="test")
    assert "Pepper" not in summary(ada)
    assert [line.text for line in standing()] == [line.text for line in lines_of(summary(ada))]
    assert len(standing()) == 3 and not ProfileLine.objects.filter(text__contains="Pepper").exists()
    work_off()
    assert "Pepper" not in summary(ada) and len(standing()) == 3
    undo_retraction(retraction, requested_by="test")
    assert summary(ada) == text
    assert list(ProfileLine.objects.order_by("pk").values()) == before


def test_a_line_from_archived_turns_stays_when_another_turn_is_retracted(session: Session, ada: UserProfile) -> None:
    later = append(ada, "s2", [NewMessage("user", "My brother Tim lives in Rome.", created_at=START)]).session
    build(later, lag=0)
    tim = line_about("Tim").pk
    later.messages.turns().archive()
    retract(session, [3], reason="mistaken", requested_by="test")
    assert "Pepper" not in summary(ada) and line_about("Tim").pk == tim and len(standing()) == 4
    assert "Tim" in summary(ada)


def test_row_10_a_line_from_archived_turns_goes_for_a_word_that_only_the_retracted_one_has(
    session: Session, ada: UserProfile
) -> None:
    later = append(ada, "s2", [NewMessage("user", "My brother Tim lives in Rome.", created_at=START)]).session
    build(later, lag=0)
    line = line_about("Tim")
    ProfileLine.objects.filter(pk=line.pk).update(text=f"{line.text} with Pepper")
    later.messages.turns().archive()
    retract(session, [3], reason="mistaken", requested_by="test")
    assert not ProfileLine.objects.filter(text__contains="Pepper").exists()


def test_row_10_a_line_that_a_retracted_turn_changed_is_as_it_was(session: Session, ada: UserProfile) -> None:
    old = line_about("Bergen")
    later = append(ada, "s2", [NewMessage("user", "I moved to Tromsø.", created_at=START)]).session
    build(later, lag=0)
    new = ProfileLine.objects.create(
        user=ada,
        text="- works as a nurse in Tromsø",
        heading=old.heading,
        position=old.position,
        source_message_ids=[*old.source_message_ids, later.messages.turns().get().pk],
        job=Moment.objects.get(source_session=later).job,
        actor=f"job:{Moment.objects.get(source_session=later).job}",
    )
    ProfileLine.objects.filter(pk=old.pk).update(ended_at=new.created_at, end_reason="changed", replaced_by=new)
    UserProfile.objects.update(summary=summary(ada).replace(old.text, new.text))
    retract(later, None, reason="mistaken", requested_by="test")
    assert old.text in summary(ada) and "Tromsø" not in summary(ada)
    assert line_about("Bergen").pk == old.pk


class TestByHand:
    """An operator corrects a line."""

    def test_it_stays_as_it_is_whatever_is_said_later_and_can_be_undone(
        self, session: Session, ada: UserProfile
    ) -> None:
        old = line_about("hazelnuts")
        edit_line(old, "Is allergic to walnuts, not hazelnuts.", actor="operator:eve")
        new = line_about("walnuts")
        assert new.is_pinned and new.text.startswith("- ") and new.heading == old.heading
        append(ada, "s1", [NewMessage("user", f"I am a member of club {n}.", created_at=START) for n in range(30)])
        build(session, lag=0)
        assert new.text in summary(ada) and line_about("walnuts").pk == new.pk
        old.refresh_from_db()
        restore_line(old, actor="operator:eve")
        assert old.text in summary(ada) and new.text not in summary(ada)
        with pytest.raises(LineMoved):
            edit_line(new, "Too late.", actor="operator:eve")
        with pytest.raises(LineMoved):
            restore_line(old, actor="operator:eve")


class TestRest:
    """Lines over REST."""

    def lines(self, service: Api, **query: Any) -> list[dict[str, Any]]:
        answer = service.get("users/ada/lines", **query)
        assert answer.status_code == 200
        found: list[dict[str, Any]] = answer.json()["lines"]
        return found

    def test_each_has_its_turns(self, session: Session, service: Api) -> None:
        lines = self.lines(service)
        assert sorted(line["sources"][0]["sequence"] for line in lines) == [0, 1, 2, 3]
        assert {line["sources"][0]["session_id"] for line in lines} == {"s1"}
        edit_line(line_about("Pepper"), "", actor="operator:eve")
        [ended] = self.lines(service, ended=True)
        assert ended["end_reason"] == "by hand" and ended["replaced_by"] is None and ended["ended_at"]
        assert len(self.lines(service)) == 3

    def test_more_lines_ask_no_more_of_the_database(self, session: Session, ada: UserProfile, service: Api) -> None:
        def statements() -> int:
            with CaptureQueriesContext(connection) as captured:
                self.lines(service)
            return len(captured)

        self.lines(service)
        before = statements()
        rows = [ProfileLine(user=ada, text=f"Line {n}.", position=9 + n) for n in range(20)]
        ProfileLine.objects.bulk_create(rows)
        assert statements() == before

    def test_row_9_nobody_reads_the_lines_of_another(self, session: Session, bo: UserProfile, service: Api) -> None:
        assert service.get("users/bo/lines").json()["lines"] == []
        assert service.get("users/nobody/lines").status_code == 404
