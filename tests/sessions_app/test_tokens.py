"""The token estimate: never far below a real tokenizer, and addable line by line."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.tokens import COUNTS, texts
from sessions_app.tokens import estimate_tokens

MOST_SHORT = 0.9  # the estimate is at least this share of what a tokenizer counts
REAL = json.loads(COUNTS.read_text())


@pytest.mark.parametrize("name", sorted(REAL))
def test_row_14_the_estimate_is_not_short_of_a_real_tokenizer_by_more_than_a_tenth(name: str) -> None:
    assert set(REAL) == set(texts())
    estimate = estimate_tokens(texts()[name])
    assert MOST_SHORT * max(REAL[name]) <= estimate <= 1.2 * max(REAL[name])


@given(st.lists(st.text(max_size=60), max_size=8))
def test_lines_together_are_estimated_no_lower_than_the_text_they_make(lines: list[str]) -> None:
    assert estimate_tokens("\n".join(lines)) <= sum(estimate_tokens(line + "\n") for line in lines)


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("", 0),
        ("a", 1),
        ("word " * 100, 100),
        ("a" * 10_000, 1_250),
        ("=" * 800, 100),
        (" " * 8_000, 100),
        ("😀" * 50, 50),
    ],
)
def test_no_text_is_nearly_free(text: str, least: int) -> None:
    assert estimate_tokens(text) >= least


def test_structured_content_counts_as_its_json() -> None:
    assert estimate_tokens("", {"city": "Turin"}) >= estimate_tokens('{"city": "Turin"}')
