"""The items of live turns that a web process caches."""

from zoneinfo import ZoneInfo

import pytest

from moments_app.context import input as caches
from moments_app.context.input import Item, LiveTurn, TurnCache
from moments_app.context.render import FORMATS
from sessions_app.models import Message, UserProfile
from sessions_app.transcript.append import NewMessage, append
from tests.support.api import Api

OSLO, LIMA = ZoneInfo("Europe/Oslo"), ZoneInfo("America/Lima")


def turn(sequence: int, content: str = "The kiln is warm.", payload: object = None) -> LiveTurn:
    return LiveTurn(sequence, sequence, "user", content, "", "", payload, 1_700_000_000_000_000 + sequence)


def made(turn: LiveTurn) -> Item:
    return Item(turn.content, role=turn.role, time=turn.created_at)


def test_an_unchanged_turn_keeps_its_item_and_token_count() -> None:
    kept = TurnCache()
    [first] = kept.items(1, OSLO, [turn(0)], made)
    tokens = FORMATS["xml"].tokens("hot_turns", first)
    again, new = kept.items(1, OSLO, [turn(0), turn(1)], made)
    assert again is first and new is not first
    assert (
        again.written and FORMATS["xml"].tokens("hot_turns", again.marked(why="", score=1.0, is_certain=True)) == tokens
    )


def test_a_changed_turn_gets_a_new_item() -> None:
    kept = TurnCache()
    kept.items(1, OSLO, [turn(0)], made)
    [item] = kept.items(1, OSLO, [turn(0, "The kiln is cold.")], made)
    assert item.text == "The kiln is cold."
    assert kept.items(2, OSLO, [turn(0)], made)[0].text == "The kiln is warm."  # of another session


def test_a_turn_gets_a_new_item_if_the_time_zone_changes() -> None:
    kept = TurnCache()
    [first] = kept.items(1, OSLO, [turn(0)], made)
    assert kept.items(1, LIMA, [turn(0)], made)[0] is not first


def test_structured_content_is_not_cached() -> None:
    kept = TurnCache()
    [first] = kept.items(1, OSLO, [turn(0, payload={"a": 1})], made)
    assert kept.items(1, OSLO, [turn(0, payload={"a": 1})], made)[0] is not first


def test_the_oldest_turns_are_dropped_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "MAX_CHARS", 2 * (caches.TURN_CHARS + 100))
    kept = TurnCache()
    for session in range(5):
        kept.items(session, OSLO, [turn(0)], made)
    assert len(kept) == 2


def test_cached_turns_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "CACHE_SECONDS", 0)
    kept = TurnCache()
    kept.items(1, OSLO, [turn(0)], made)
    assert len(kept) == 0


@pytest.mark.django_db(transaction=True)
def test_a_context_has_the_current_text_of_turns(service: Api, ada: UserProfile) -> None:
    append(ada, "s1", [NewMessage("user", "The kiln is warm."), NewMessage("assistant", "Good.")])

    def context() -> str:
        return str(service.get("memory/context", user_id="ada", session_id="s1").json()["context"])

    assert "The kiln is warm." in context()
    Message.objects.filter(content="The kiln is warm.").update(content="The kiln is cold.")
    assert "The kiln is cold." in context() and "warm" not in context()
