"""The token estimate: never far below a real tokenizer, and additive over lines."""

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.tokens import COUNTS, texts
from sessions_app.text.length import estimate_tokens

MAX_SHORT = 0.9  # the minimum ratio of the estimate to a real count
REAL = json.loads(COUNTS.read_text())
# The definition of the estimate: the weight of each match of a pattern, in hundredths.
WEIGHTS = {
    "[A-Za-z\u00c0-\u024f]+": 102,
    "[A-Za-z\u00c0-\u024f]{9}": 310,
    "[a-z][A-Z]": 140,
    "[A-Z]{3}": 75,
    r"\d{1,3}": 150,
    r"[!-/:-@\[-`{-~]": 50,
    "\n+": 140,
    "[\t\r]": 80,
    " {16}": 100,
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]": 100,
    "[\u00c0-\u024f]": 170,
    "[\u0250-\u08ff]": 85,
    "[\u0900-\u1fff\u2e80-\ud7af\uf900-\ufaff\uff00-\uffef]": 125,
    "[\u0080-\u00bf\u2000-\u2e7f\ud7b0-\uf8ff\ufb00-\ufeff\U00010000-\U0010ffff]": 200,
}
# Characters of every kind, some repeated to make runs likely.
TEXTS = (
    st.text(st.sampled_from("aaaaAAA  00\u0663\n\t\r.?\0\x1f\x7f\xa0\xb2\xd7\xdfé\u0101Яשא你가ｱ\uffff\ud800–…😀"))
    | st.text()
)


@pytest.mark.parametrize("name", sorted(REAL))
def test_row_14_the_estimate_is_at_most_a_tenth_below_a_real_tokenizer(name: str) -> None:
    assert set(REAL) == set(texts())
    estimate = estimate_tokens(texts()[name])
    assert MAX_SHORT * max(REAL[name]) <= estimate <= 1.2 * max(REAL[name])


def weighed(text: str) -> int:
    return math.ceil(sum(weight * len(re.findall(pattern, text)) for pattern, weight in WEIGHTS.items()) / 100)


@given(TEXTS, st.integers(0, 20))
def test_the_estimate_is_the_sum_of_the_pattern_weights(text: str, times: int) -> None:
    assert estimate_tokens(text) == weighed(text)
    assert estimate_tokens(text * times) == weighed(text * times)


@given(st.lists(st.text(max_size=60), max_size=8))
def test_the_sum_of_line_estimates_is_not_below_the_estimate_of_the_text(lines: list[str]) -> None:
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
def test_every_text_has_a_minimum_estimate(text: str, least: int) -> None:
    assert estimate_tokens(text) >= least


def test_structured_content_counts_as_its_json() -> None:
    assert estimate_tokens("", {"city": "Turin"}) >= estimate_tokens('{"city": "Turin"}')
