"""Items of what recall found that a web process keeps."""

from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from pytest_django.fixtures import Settings

from moments_app.context import kept_lines
from moments_app.context.item import Item
from moments_app.context.kept_lines import KEPT_LINES, KeptLines
from moments_app.context.render import FORMATS
from moments_app.recall.results import Result
from sessions_app.models import Message, UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support.api import Api

SAID_AT = datetime(2026, 3, 2, tzinfo=UTC)
OSLO, LIMA = ZoneInfo("Europe/Oslo"), ZoneInfo("America/Lima")


def result(content: str = "The kiln is warm.", *, sequence: int = 0, score: float = 1.0) -> Result:
    ref = f"rem://sessions/s1/messages/{sequence}"
    return Result("turn", ref, content, "s1", sequence, SAID_AT, "user", 1, None, None, score, {"text": 1})


def made(result: Result, zone: ZoneInfo) -> Item:
    return Item(result.content, ref=result.ref, time=result.time.astimezone(zone), role=result.role)


def test_the_same_line_has_the_same_item_whatever_it_is_worth() -> None:
    kept = KeptLines()
    first = kept.item(1, OSLO, result(), made)
    tokens = FORMATS["xml"].tokens("retrieved", first)
    again = kept.item(1, OSLO, result(score=0.3), made)
    assert again is first and kept.item(1, OSLO, result(sequence=1), made) is not first
    assert FORMATS["xml"].tokens("retrieved", again.marked(why="words no. 2", score=0.3)) == tokens


def test_a_line_that_says_something_else_now_has_another_item() -> None:
    kept = KeptLines()
    kept.item(1, OSLO, result(), made)
    assert kept.item(1, OSLO, result("The kiln is cold."), made).text == "The kiln is cold."
    assert len(kept) == 1


def test_a_line_of_somebody_who_moved_has_another_item_with_another_day() -> None:
    kept = KeptLines()
    days = [kept.item(1, zone, result(), made).time for zone in (OSLO, LIMA)]
    assert [day and day.day for day in days] == [2, 1]


def test_nobody_has_the_item_of_another_person() -> None:
    kept = KeptLines()
    assert kept.item(1, OSLO, result(), made) is not kept.item(2, OSLO, result(), made)


def test_an_item_is_marked_without_changing_the_one_that_is_kept() -> None:
    kept = KeptLines()
    marked = kept.item(1, OSLO, result(), made).marked(why="words no. 1", score=0.5, is_neighbour=True)
    item = kept.item(1, OSLO, result(), made)
    assert (item.why, item.score, item.is_neighbour) == ("", 1.0, False)
    assert marked == replace(item, why="words no. 1", score=0.5, is_neighbour=True)


def test_those_kept_for_longest_go_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_lines, "MOST_CHARS", 2 * (kept_lines.LINE_CHARS + 100))
    kept = KeptLines()
    for sequence in range(5):
        kept.item(1, OSLO, result(sequence=sequence), made)
    assert len(kept) == 2


def test_nothing_is_kept_where_nothing_is_to_be(settings: Settings) -> None:
    settings.MEMORY_CONTEXT = settings.MEMORY_CONTEXT.model_copy(update={"sync_minutes": 0})
    kept = KeptLines()
    kept.item(1, OSLO, result(), made)
    assert len(kept) == 0


@pytest.mark.django_db(transaction=True)
def test_a_context_has_what_was_found_as_it_is_now(service: Api, ada: UserProfile) -> None:
    append(ada, "s1", [NewMessage("user", "The kiln is warm."), NewMessage("assistant", "Good.")])

    def context() -> str:
        return str(service.get("memory/context", user_id="ada", session_id="s2", query="kiln").json()["context"])

    assert "The kiln is warm." in context() and len(KEPT_LINES) > 0
    Message.objects.filter(content="The kiln is warm.").update(content="The kiln is cold.")
    assert "The kiln is cold." in context() and "warm" not in context()
