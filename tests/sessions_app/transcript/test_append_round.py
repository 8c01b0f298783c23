"""Storing the new messages of a chat call, whose history may be repeated, partial, edited or concurrent."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import assume, given
from hypothesis import strategies as st

from sessions_app.models import Message, Session, UserProfile
from sessions_app.models.application import DEFAULT
from sessions_app.row_security import acting_for
from sessions_app.transcript.append import NewMessage
from sessions_app.transcript.append_round import append_round, begin_round, end_round, live_from, newest_turns

pytestmark = pytest.mark.django_db(transaction=True)

ROLES = {"u": "user", "a": "assistant", "t": "tool"}


def said(texts: str, **fields: Any) -> list[NewMessage]:
    """Return the turns of a line such as `u:hi a:hello`."""
    pairs = [text.split(":") for text in texts.split()]
    return [NewMessage(role=ROLES[role], content=content, **fields) for role, content in pairs]


def store(sent: str, answer: str = "", **metadata: str) -> None:
    with acting_for("ada", application=DEFAULT, create=True, for_write=True) as user:
        assert user is not None
        turns = said(f"a:{answer}", metadata=metadata) if answer else [None]
        append_round(user, "s1", said(sent), turns[0])
    connection.close()


def transcript() -> str:
    turns = Message.objects.turns().in_order()
    return " ".join(f"{turn.role[0]}:{turn.content}" for turn in turns)


@pytest.mark.parametrize(
    ("there", "sent", "answer", "then"),
    [
        # the complete history each time
        ("", "u:1", "one", "u:1 a:one"),
        ("u:1 a:one", "u:1 a:one u:2", "two", "u:1 a:one u:2 a:two"),
        # only the end of the history, or only the newest message
        ("u:1 a:one u:2 a:two", "u:2 a:two u:3", "three", "u:1 a:one u:2 a:two u:3 a:three"),
        ("u:1 a:one", "u:2", "two", "u:1 a:one u:2 a:two"),
        # a history that started elsewhere: stored completely in a new session, from the known part on in a known one
        ("", "u:0 a:zero u:1", "one", "u:0 a:zero u:1 a:one"),
        ("u:1 a:one", "u:0 a:zero u:1 a:one u:2", "two", "u:1 a:one u:2 a:two"),
        ("u:1 a:one", "u:1 a:one u:x a:y u:2", "two", "u:1 a:one u:x a:y u:2 a:two"),
        # the same words again
        ("u:hi a:yes u:ok a:good", "u:hi a:yes u:ok a:good u:ok", "good", "u:hi a:yes u:ok a:good u:ok a:good"),
        ("u:hi a:yes u:ok a:good", "u:ok", "good", "u:hi a:yes u:ok a:good u:ok a:good"),
        ("u:ok a:good u:ok a:good", "u:ok a:good u:ok", "good", "u:ok a:good u:ok a:good u:ok a:good"),
        # a repeated call, with the same or another answer
        ("u:1 a:one", "u:1", "one", "u:1 a:one"),
        ("u:1 a:one u:2 a:two", "u:1 a:one u:2", "two", "u:1 a:one u:2 a:two"),
        ("u:1 a:one u:2 a:two", "u:1 a:one u:2", "zwei", "u:1 a:one u:2 a:two a:zwei"),
        ("u:1 a:one u:2", "u:1 a:one u:2", "two", "u:1 a:one u:2 a:two"),
        ("u:1 a:one u:2", "u:2", "two", "u:1 a:one u:2 a:two"),
        # stored late, after the next round
        ("u:1 a:one u:2 a:two u:3 a:three", "u:1 a:one u:2", "two", "u:1 a:one u:2 a:two u:3 a:three"),
        # an edited history: turns after the change are new, turns before it are not changed
        ("u:1 a:one u:2 a:two", "u:1 a:one u:zwei", "2", "u:1 a:one u:2 a:two u:zwei a:2"),
        ("u:1 a:one u:2 a:two", "u:eins a:one u:2 a:two u:3", "three", "u:1 a:one u:2 a:two u:3 a:three"),
        # tool results
        ("u:1 a:call", "u:1 a:call t:result", "one", "u:1 a:call t:result a:one"),
        ("u:1 a:call t:result", "u:1 a:call t:result", "one", "u:1 a:call t:result a:one"),
        # without an answer
        ("u:1 a:one", "u:1 a:one u:2", "", "u:1 a:one u:2"),
    ],
)
def test_only_new_turns_are_appended(there: str, sent: str, answer: str, then: str) -> None:
    if there:
        store(there)
    store(sent, answer)
    assert transcript() == then


@pytest.mark.parametrize("sent", ["u:1 a:o u:2", "u:1 a:one u:2", "u:1 u:2"])
def test_an_interrupted_answer_is_known_whatever_part_the_caller_received(sent: str) -> None:
    store("u:1", "on", incomplete="client_disconnected")
    store(sent, "two")
    assert transcript() == "u:1 a:on u:2 a:two"


def test_a_message_with_an_interrupted_answer_is_not_stored_twice_when_sent_again() -> None:
    store("u:hi a:yes u:1", "on", incomplete="client_disconnected")
    store("u:1", "one")
    assert transcript() == "u:hi a:yes u:1 a:on a:one"


@pytest.mark.parametrize("begins", [False, True])
def test_an_answer_interrupted_after_its_last_word_is_completed_by_a_repetition(begins: bool) -> None:
    store("u:1", "one", incomplete="interrupted")
    if not begins:
        store("u:1", "one", model="m")
    else:
        with acting_for("ada", application=DEFAULT, for_write=True) as user:
            assert user is not None
            begun = begin_round(user, "s1", said("u:1"), round_id="r2")
            [answer] = said("a:one", metadata={"model": "m"})
            assert end_round(user, begun, answer, round_id="r2")
    assert transcript() == "u:1 a:one"
    assert Message.objects.get(role="assistant").metadata == {"model": "m"}


def test_a_round_begun_and_ended_repeatedly_is_stored_once() -> None:
    [answer] = said("a:one")
    for _ in range(2):
        with acting_for("ada", application=DEFAULT, create=True, for_write=True) as user:
            assert user is not None
            begun = begin_round(user, "s1", said("u:1"), round_id="r1")
        for _ in range(2):
            with acting_for("ada", application=DEFAULT, for_write=True) as user:
                assert user is not None
                assert end_round(user, begun, answer, round_id="r1")
    assert transcript() == "u:1 a:one"


def test_a_round_takes_a_constant_number_of_statements() -> None:
    counts = []
    for length in (2, 40):
        store(" ".join(f"u:{n} a:{n}" for n in range(length)))
        [answer] = said(f"a:of-{length}")
        with CaptureQueriesContext(connection) as queries:
            with acting_for("ada", application=DEFAULT, for_write=True) as user:
                assert user is not None
                begun = begin_round(user, "s1", said(f"u:after-{length}"), round_id=f"r{length}")
            with acting_for("ada", application=DEFAULT, for_write=True) as user:
                assert user is not None
                end_round(user, begun, answer, round_id=f"r{length}")
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_a_message_is_marked_as_unanswered_by_its_first_round() -> None:
    for round_id, why in (("r1", "upstream_timeout"), ("r2", "refused")):
        with acting_for("ada", application=DEFAULT, create=True, for_write=True) as user:
            assert user is not None
            begun = begin_round(user, "s1", said("u:1"), round_id=round_id)
            assert end_round(user, begun, None, round_id=round_id, unanswered=why)
    assert Message.objects.get().metadata == {"incomplete": "upstream_timeout"}


def test_tool_calls_are_equal_despite_additional_fields() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    asked = NewMessage(role="user", content="weather?")

    def calling(call: dict[str, Any]) -> NewMessage:
        return NewMessage(role="assistant", payload={"tool_calls": [call]})

    result = NewMessage(role="tool", content="rain", payload={"tool_call_id": "c1"})
    with acting_for("ada", application=DEFAULT, create=True) as user:
        assert user is not None
        append_round(user, "s1", [asked], calling(call))
        append_round(user, "s1", [asked, calling(call | {"index": 0}), result], NewMessage("assistant", "Rain."))
    assert transcript() == "u:weather? a: t:rain a:Rain."


def test_a_history_whose_turns_were_archived_is_not_stored_again(ada: UserProfile) -> None:
    store("u:1", "one")
    Message.objects.all().delete()
    store("u:1 a:one u:2", "two")
    assert transcript() == "u:2 a:two"


@pytest.mark.slow
def test_row_1_a_call_sent_20_times_at_once_is_stored_once() -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: store("u:0 a:zero u:1", "one"), range(20)))
    assert transcript() == "u:0 a:zero u:1 a:one"
    assert Session.objects.get().message_count == 4


def test_concurrent_rounds_of_one_session_are_all_stored_completely() -> None:
    store("u:hi", "hello")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: store(f"u:hi a:hello u:q{n}", f"a{n}"), range(12)))
    rounds = transcript().removeprefix("u:hi a:hello ").split()
    assert sorted(rounds[::2]) == sorted(f"u:q{n}" for n in range(12))
    assert [text.replace("u:q", "a:a") for text in rounds[::2]] == rounds[1::2]


def test_only_the_newest_turns_of_a_long_history_are_stored() -> None:
    store(" ".join(f"u:{n} a:{n}" for n in range(300)) + " u:last", "answer")
    turns = transcript().split()
    assert (len(turns), turns[-3:]) == (501, ["a:299", "u:last", "a:answer"])


@pytest.mark.parametrize(
    ("there", "boundary", "sent", "live"),
    [
        ("u:1 a:one u:2 a:two", 1, "u:1 a:one u:2 a:two u:3", "u:2 a:two u:3"),
        # the newest answer is not stored yet
        ("u:1 a:one u:2", 1, "u:1 a:one u:2 a:two u:3", "u:2 a:two u:3"),
        # a settled session has no live turns
        ("u:1 a:one u:2 a:two", 3, "u:1 a:one u:2 a:two u:3", "u:3"),
        ("u:1 a:one", 1, "u:1 a:one u:2 a:two u:3", "u:2 a:two u:3"),
        # the call has only the end of the history, or none of it
        ("u:1 a:one u:2 a:two", 1, "a:two u:3", "a:two u:3"),
        ("u:1 a:one u:2 a:two", 2, "u:3", "u:3"),
        # the history starts before the session
        ("u:1 a:one u:2 a:two", 1, "u:0 a:zero u:1 a:one u:2 a:two u:3", "u:2 a:two u:3"),
        # repeated words: this may be the end of the history, or all of it
        ("u:ok a:good u:ok a:good", 1, "u:ok a:good u:ok a:good u:ok", "u:ok a:good u:ok a:good u:ok"),
        # an edited turn, before or after the boundary
        ("u:1 a:one u:2 a:two", 1, "u:1 a:eins u:2 a:two u:3", "u:2 a:two u:3"),
        ("u:1 a:one u:2 a:two", 1, "u:1 a:one u:zwei a:two u:3", "u:zwei a:two u:3"),
        # no common turn: the start is unknown
        ("u:1 a:one u:2 a:two", 1, "u:x a:y u:3", "u:x a:y u:3"),
        # a tool call and its results are not separated
        ("u:1 a:call t:result a:one", 1, "u:1 a:call t:result a:one u:2", "a:call t:result a:one u:2"),
    ],
)
def test_a_history_is_cut_at_the_start_of_the_live_window(there: str, boundary: int, sent: str, live: str) -> None:
    store(there)
    turns = said(sent)
    with acting_for("ada", application=DEFAULT):
        known = newest_turns(Session.objects.get(), turns)
    connection.close()
    start = live_from(known, turns, boundary)
    assert turns[start:] == said(live)


@pytest.mark.slow
@given(
    texts=st.lists(st.sampled_from("abc"), min_size=1, max_size=30),
    boundary=st.integers(0, 40),
    unsent=st.integers(0, 10),
    unstored=st.integers(0, 3),
)
def test_no_live_turn_is_cut_off(texts: list[str], boundary: int, unsent: int, unstored: int) -> None:
    """The turns of the live window stay in the call, stored or not, whatever words are repeated."""
    assume(unsent < len(texts) - unstored)  # otherwise it shares no turn with the session
    everything = [NewMessage(role=("user", "assistant")[n % 2], content=text) for n, text in enumerate(texts)]
    known = [
        Message(sequence=n, role=turn.role, content=turn.content, payload=None, metadata={})
        for n, turn in enumerate(everything[: len(everything) - unstored])
    ]
    sent = [*everything[unsent:], NewMessage(role="user", content="new")]
    start = live_from(known, sent, boundary)
    assert start <= max(0, boundary + 1 - unsent)
