"""The static layers of contexts that a web process caches."""

from dataclasses import replace

import pytest

from moments_app.context import input as caches
from moments_app.context.budget import fill_budget
from moments_app.context.input import Item, LayerCache
from moments_app.context.render import FORMATS, MAX_CUTS

LAYERS = {"user": [Item("Ada fires kilns. She lives in Oslo. She has a dog. It is called Nora.")], "moments": []}


def test_layers_are_returned_only_for_their_stamp() -> None:
    kept = LayerCache()
    kept.put(1, "a", LAYERS)
    assert kept.get(1, "a") is LAYERS
    assert (kept.get(1, "b"), kept.get(2, "a")) == (None, None)


def test_expired_layers_are_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "CACHE_SECONDS", 0)
    kept = LayerCache()
    kept.put(1, "a", LAYERS)
    assert kept.get(1, "a") is None


def test_layers_of_deleted_sessions_are_dropped() -> None:
    kept = LayerCache()
    for session in range(3):
        kept.put(session, "a", LAYERS)
    kept.drop([0, 2, 7])
    assert [kept.get(session, "a") is not None for session in range(3)] == [False, True, False]


def test_the_oldest_layers_are_dropped_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "MAX_CHARS", 2 * (caches.ITEM_CHARS + 100))
    kept = LayerCache()
    for session in range(5):
        kept.put(session, "a", LAYERS)
    assert [kept.get(session, "a") is not None for session in range(5)] == [False, False, False, True, True]


@pytest.mark.parametrize("form", FORMATS)
def test_a_cached_item_costs_and_cuts_like_a_new_one(form: str) -> None:
    kept = Item(" ".join(f"{LAYERS['user'][0].text} It is day {day}." for day in range(12)))
    first = Item("First of all.")
    for applied in [*range(100, 900, 40), *range(880, 100, -60)]:
        for before in ([], [first]):  # the second puts the item at another position
            filled = [
                fill_budget({"user": [*before, item]}, FORMATS[form], applied).layers["user"]
                for item in (kept, replace(kept))
            ]
            assert [(one.item.text, one.tokens, one.why) for one in filled[0]] == [
                (one.item.text, one.tokens, one.why) for one in filled[1]
            ]
            assert len(kept.cuts) <= MAX_CUTS
            assert all(one.tokens == FORMATS[form].tokens("user", Item(one.item.text)) for one in filled[0])
