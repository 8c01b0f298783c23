"""The end of a stream is held back, in whatever parts it arrives."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moments_app.interfaces.chat.protocols import CHAT, RESPONSES
from moments_app.interfaces.chat.relay import StreamEnd

LINES = [b'data: {"a": "data: [DONE]"}\n', b"\n", b": comment\r\n", b"data", b"data:[DON", b"x data: [DONE]\n", b"\n\n"]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Return the data in parts."""
    at = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:end] for start, end in itertools.pairwise(at)]


@given(
    lines=st.lists(st.sampled_from(LINES)),
    end=st.sampled_from([b"\ndata: [DONE]\n\n", b"\ndata:[DONE]\r\n\r\n", b"\ndata: [DONE]\n\ndata: more\n\n"]),
    places=st.lists(st.integers(0, 200)),
)
def test_everything_before_the_end_is_passed_on(lines: list[bytes], end: bytes, places: list[int]) -> None:
    before = b"".join(lines) + b"\n"
    ending = StreamEnd(CHAT.endings)
    passed = b"".join(ending.feed(part) for part in cut(before + end[1:], places))
    assert (passed, ending.held, ending.is_found) == (before, end[1:], True)


@given(lines=st.lists(st.sampled_from(LINES)), places=st.lists(st.integers(0, 200)))
def test_without_an_end_only_its_possible_beginning_is_held(lines: list[bytes], places: list[int]) -> None:
    data = b"".join(lines)
    ending = StreamEnd(CHAT.endings)
    passed = b"".join(ending.feed(part) for part in cut(data, places))
    assert passed + ending.held == data
    assert len(ending.held) < len(b"data: [DONE]")
    assert not ending.is_found


EVENTS = [
    b"event: response.created\n",
    b'data: {"type": "response.created"}\n',
    b"\n",
    b"event",
    b'data: {"type":"resp',
]


@given(
    lines=st.lists(st.sampled_from(EVENTS)),
    end=st.sampled_from([b"event: response.completed\ndata: {}\n\n", b'data: {"type":"response.incomplete"}\n\n']),
    places=st.lists(st.integers(0, 200)),
)
def test_row_27_the_last_event_of_a_response_is_held_back_in_whatever_parts_it_arrives(
    lines: list[bytes], end: bytes, places: list[int]
) -> None:
    before = b"".join(lines) + b"\n"
    ending = StreamEnd(RESPONSES.endings)
    passed = b"".join(ending.feed(part) for part in cut(before + end, places))
    assert (passed, ending.held, ending.is_found) == (before, end, True)


@pytest.mark.parametrize("rest", [b"", b"\n\n"])
def test_data_after_the_end_is_held_with_it(rest: bytes) -> None:
    ending = StreamEnd(CHAT.endings)
    assert ending.feed(b"data: 1\n\ndata: [DONE]") == b"data: 1\n\n"
    assert ending.feed(rest) == b""
    assert ending.held == b"data: [DONE]" + rest
