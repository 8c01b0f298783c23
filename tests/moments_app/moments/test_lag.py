"""Which turns a build compacts: every rule without a database."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryproject.conf import MomentBuilderSettings
from moments_app.moments.lag import lag, normalised, split
from moments_app.turns.tool_pairs import pair_safe_boundary

DEFAULTS = MomentBuilderSettings()


@dataclass(frozen=True)
class T:
    role: str
    payload: object = None


def call(*ids: str) -> T:
    return T("assistant", {"tool_calls": [{"id": i} for i in ids]})


def result(of: str = "") -> T:
    return T("tool", {"tool_call_id": of} if of else None)


U, A = T("user"), T("assistant")


@pytest.mark.parametrize(
    ("message_count", "expected"), [(250, 75), (50, 15), (100, 30), (10_000, 75), (12, 10), (34, 10), (0, 10)]
)
def test_lag_keeps_a_third_of_the_window_live_but_is_bounded(message_count: int, expected: int) -> None:
    assert lag(DEFAULTS, message_count=message_count) == expected


def test_lag_of_few_but_large_turns_is_the_least_number() -> None:
    assert lag(DEFAULTS, message_count=240, few_but_large=True) == 10


def test_lag_is_exact_where_binary_fractions_are_not() -> None:
    conf = DEFAULTS.model_copy(update={"lag_percentage": 0.29, "lag_messages": 0})
    assert lag(conf, message_count=100) == 29


@pytest.mark.parametrize(
    ("turns", "boundary", "expected"),
    [
        ([U, A, U, A], 2, 2),
        ([U, call("a"), result("a"), A], 2, 1),
        ([U, call("a"), result("a"), A], 3, 3),
        ([U, call("a", "b"), result("a"), result("b"), A], 3, 1),
        ([U, call("a"), U, A, result("a"), A], 3, 1),  # the result came late
        ([U, call(), result(), result(), A], 3, 1),  # without ids: the nearest call before
        ([result(), U, A], 0, 0),
        ([result("?"), U, A], 1, 1),
        ([U, call("a")], 2, 1),  # the result is still to come
        ([U, call("a", "b"), result("a")], 3, 1),
        ([U, call("a"), result("a")], 3, 3),
        ([U, call("a"), U, A], 4, 4),  # never answered, and talked on: no reason to wait
        ([call("a"), call("b"), result("b"), result("a")], 3, 0),  # interleaved
        ([U, call("a"), call("b"), result("a")], 4, 1),  # before the open call, so before the other's too
        ([U, call("a"), call("b"), result("b")], 4, 1),
    ],
)
def test_a_boundary_moves_back_to_before_the_call(turns: list[T], boundary: int, expected: int) -> None:
    assert pair_safe_boundary(turns, boundary) == expected


@st.composite
def tool_sequences(draw: st.DrawFn) -> list[T]:
    """Turns with calls whose results come at once, late, in any order, or never."""
    turns: list[T] = []
    waiting: list[str] = []
    for number in range(draw(st.integers(0, 25))):
        kind = draw(st.sampled_from(["user", "assistant", "call", "result", "result", "system"]))
        if kind == "call":
            ids = [f"{number}-{n}" for n in range(draw(st.integers(1, 3)))]
            waiting += ids
            turns.append(call(*ids))
        elif kind == "result" and waiting:
            turns.append(result(waiting.pop(draw(st.integers(0, len(waiting) - 1)))))
        else:
            turns.append(T("user" if kind == "result" else kind))
    return turns


@given(tool_sequences(), st.data())
def test_row_22_a_boundary_never_falls_inside_a_pair(turns: list[T], data: st.DataObject) -> None:
    asked = data.draw(st.integers(0, len(turns)))
    boundary = pair_safe_boundary(turns, asked)
    assert 0 <= boundary <= asked
    before = {c["id"] for t in turns[:boundary] if isinstance(t.payload, dict) for c in t.payload.get("tool_calls", [])}
    after = {t.payload["tool_call_id"] for t in turns[boundary:] if t.role == "tool" and isinstance(t.payload, dict)}
    assert not before & after
    assert pair_safe_boundary(turns, boundary) == boundary


@given(st.lists(st.tuples(st.integers(-5, 40), st.integers(-5, 40)), min_size=1, max_size=12), st.integers(1, 30))
def test_every_turn_of_a_window_is_in_exactly_one_range(ranges: list[tuple[int, int]], length: int) -> None:
    kept = normalised(ranges, length)
    covered = [n for start, end in kept.values() for n in range(start, end + 1)]
    usable = any(min(max(start, 0), length - 1) <= min(max(end, 0), length - 1) for start, end in ranges)
    assert covered == (list(range(length)) if usable else [])
    assert set(kept) <= set(range(len(ranges)))


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8))
def test_ranges_that_already_cover_the_window_are_left_alone(lengths: list[int]) -> None:
    starts = [sum(lengths[:n]) for n in range(len(lengths))]
    ranges = [(start, start + length - 1) for start, length in zip(starts, lengths, strict=True)]
    assert list(normalised(ranges, sum(lengths)).values()) == ranges


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([(0, 4), (5, 9)], {0: (0, 4), 1: (5, 9)}),
        ([(5, 9), (0, 4)], {1: (0, 4), 0: (5, 9)}),
        ([(0, 6), (4, 9)], {0: (0, 6), 1: (7, 9)}),  # overlap: the earlier keeps its part
        ([(0, 2), (6, 9)], {0: (0, 5), 1: (6, 9)}),  # gap: to the earlier neighbour
        ([(3, 5), (6, 7)], {0: (0, 5), 1: (6, 9)}),  # at the front: to the first; at the end: to the last
        ([(0, 99)], {0: (0, 9)}),
        ([(0, 9), (2, 5)], {0: (0, 9)}),  # nothing is left of it
        ([(8, 2), (0, 3)], {1: (0, 9)}),  # the wrong way round
    ],
)
def test_ranges_are_clipped_sorted_cut_and_filled(
    ranges: list[tuple[int, int]], expected: dict[int, tuple[int, int]]
) -> None:
    assert normalised(ranges, 10) == expected


@given(st.lists(st.tuples(st.integers(1, 50), st.booleans()), max_size=40), st.integers(1, 120))
def test_a_split_covers_all_turns_within_the_limit(turns: list[tuple[int, bool]], limit: int) -> None:
    sizes = [size for size, _ in turns]
    parts = split(sizes, limit, [glued for _, glued in turns])
    assert [n for part in parts for n in part] == list(range(len(turns)))
    assert all(len(part) == 1 or sum(sizes[n] for n in part) <= limit for part in parts)


def test_a_split_keeps_tool_results_with_their_call() -> None:
    glued = [False, False, True, True, False]
    assert split([10, 10, 10, 10, 10], 30, glued) == [range(0, 1), range(1, 4), range(4, 5)]


def test_row_7_a_turn_larger_than_the_window_makes_a_part_of_its_own() -> None:
    assert split([5, 900, 5], 100, [False] * 3) == [range(0, 1), range(1, 2), range(2, 3)]
