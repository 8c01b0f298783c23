"""No boundary falls between a tool call and its results: every rule without a database."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moments_app.turns.engine_input import pair_safe_boundary


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
    ("turns", "boundary", "expected"),
    [
        ([U, A, U, A], 2, 2),
        ([U, call("a"), result("a"), A], 2, 1),
        ([U, call("a"), result("a"), A], 3, 3),
        ([U, call("a", "b"), result("a"), result("b"), A], 3, 1),
        ([U, call("a"), U, A, result("a"), A], 3, 1),  # a late result
        ([U, call(), result(), result(), A], 3, 1),  # without ids, the nearest call before the result
        ([result(), U, A], 0, 0),
        ([result("?"), U, A], 1, 1),
        ([U, call("a")], 2, 1),  # the result is missing so far
        ([U, call("a", "b"), result("a")], 3, 1),
        ([U, call("a"), result("a")], 3, 3),
        ([U, call("a"), U, A], 4, 4),  # never answered, and the conversation went on, so don't wait
        ([call("a"), call("b"), result("b"), result("a")], 3, 0),  # interleaved
        ([U, call("a"), call("b"), result("a")], 4, 1),  # before the open call, and so before the other one
        ([U, call("a"), call("b"), result("b")], 4, 1),
    ],
)
def test_a_boundary_is_moved_before_the_tool_call(turns: list[T], boundary: int, expected: int) -> None:
    assert pair_safe_boundary(turns, boundary) == expected


@st.composite
def tool_sequences(draw: st.DrawFn) -> list[T]:
    """Turns with calls whose results follow at once, late, in any order, or never."""
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


@pytest.mark.slow
@given(tool_sequences(), st.data())
def test_row_22_a_boundary_never_separates_a_call_from_its_results(turns: list[T], data: st.DataObject) -> None:
    asked = data.draw(st.integers(0, len(turns)))
    boundary = pair_safe_boundary(turns, asked)
    assert 0 <= boundary <= asked
    before = {c["id"] for t in turns[:boundary] if isinstance(t.payload, dict) for c in t.payload.get("tool_calls", [])}
    after = {t.payload["tool_call_id"] for t in turns[boundary:] if t.role == "tool" and isinstance(t.payload, dict)}
    assert not before & after
    assert pair_safe_boundary(turns, boundary) == boundary
