"""Which turns a build compacts and how they are divided: every rule without a database."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryproject.conf import MomentBuilderSettings
from moments_app.moments.division import cover_window
from moments_app.turns.engine_input import split

DEFAULTS = MomentBuilderSettings()


@pytest.mark.parametrize(
    ("message_count", "expected"), [(250, 75), (50, 15), (100, 30), (10_000, 75), (12, 10), (34, 10), (0, 10)]
)
def test_the_lag_is_a_limited_third_of_the_window(message_count: int, expected: int) -> None:
    assert DEFAULTS.lag(message_count) == expected


def test_the_lag_of_a_few_large_turns_is_the_minimum() -> None:
    assert DEFAULTS.lag(240, few_but_large=True) == 10


def test_the_lag_is_exact_despite_binary_fractions() -> None:
    conf = DEFAULTS.model_copy(update={"lag_percentage": 0.29, "lag_messages": 0})
    assert conf.lag(100) == 29


@given(st.lists(st.tuples(st.integers(-5, 40), st.integers(-5, 40)), min_size=1, max_size=12), st.integers(1, 30))
def test_every_turn_of_a_window_is_in_exactly_one_range(ranges: list[tuple[int, int]], length: int) -> None:
    kept = cover_window(ranges, length)
    covered = [n for start, end in kept.values() for n in range(start, end + 1)]
    usable = any(min(max(start, 0), length - 1) <= min(max(end, 0), length - 1) for start, end in ranges)
    assert covered == (list(range(length)) if usable else [])
    assert set(kept) <= set(range(len(ranges)))


@pytest.mark.slow
@given(st.lists(st.integers(1, 6), min_size=1, max_size=8))
def test_ranges_that_cover_the_window_are_unchanged(lengths: list[int]) -> None:
    starts = [sum(lengths[:n]) for n in range(len(lengths))]
    ranges = [(start, start + length - 1) for start, length in zip(starts, lengths, strict=True)]
    assert list(cover_window(ranges, sum(lengths)).values()) == ranges


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([(0, 4), (5, 9)], {0: (0, 4), 1: (5, 9)}),
        ([(5, 9), (0, 4)], {1: (0, 4), 0: (5, 9)}),
        ([(0, 6), (4, 9)], {0: (0, 6), 1: (7, 9)}),  # overlap: the earlier one keeps its part
        ([(0, 2), (6, 9)], {0: (0, 5), 1: (6, 9)}),  # gap: goes to the earlier neighbor
        ([(3, 5), (6, 7)], {0: (0, 5), 1: (6, 9)}),  # at the start: goes to the first; at the end: goes to the last
        ([(0, 99)], {0: (0, 9)}),
        ([(0, 9), (2, 5)], {0: (0, 9)}),  # no part of it is left
        ([(8, 2), (0, 3)], {1: (0, 9)}),  # reversed
    ],
)
def test_ranges_are_clipped_sorted_cut_and_filled(
    ranges: list[tuple[int, int]], expected: dict[int, tuple[int, int]]
) -> None:
    assert cover_window(ranges, 10) == expected


@given(st.lists(st.tuples(st.integers(1, 50), st.booleans()), max_size=40), st.integers(1, 120))
def test_a_split_covers_all_turns_within_the_limit(turns: list[tuple[int, bool]], limit: int) -> None:
    sizes = [size for size, _ in turns]
    parts = split(sizes, limit, [glued for _, glued in turns])
    assert [n for part in parts for n in part] == list(range(len(turns)))
    assert all(len(part) == 1 or sum(sizes[n] for n in part) <= limit for part in parts)


def test_a_split_keeps_tool_results_with_their_call() -> None:
    glued = [False, False, True, True, False]
    assert split([10, 10, 10, 10, 10], 30, glued) == [range(0, 1), range(1, 4), range(4, 5)]


def test_row_7_a_turn_larger_than_the_window_is_a_separate_part() -> None:
    assert split([5, 900, 5], 100, [False] * 3) == [range(0, 1), range(1, 2), range(2, 3)]
