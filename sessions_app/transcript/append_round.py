"""`append_round`: a chat model's call into the transcript: what the caller sent that isn't there yet, and the answer.

Chat clients send their whole history with every call, or the end of it, or nothing but the newest message; they send a
call again when its answer got lost, and change what was said. What is new is found by comparing with the session's
newest turns, under the session's lock, so that calls at the same time can't both find it new. Where it can't be told
whether a message is repeated or said once more, it is taken as said once more: a turn too many is better than one lost.
"""

import json
from collections.abc import Sequence
from difflib import Match, SequenceMatcher
from itertools import takewhile
from typing import Any, Protocol

from sessions_app.models import Message, Session, UserProfile
from sessions_app.transcript.append import BATCH_MAX, Appended, NewMessage, append, locked_session

BEYOND = 20  # turns that may follow those a caller knows of: rounds stored meanwhile, answers to calls sent again
COMPARED = ("role", "content", "payload", "metadata")
INCOMPLETE = "incomplete"  # in the metadata of an answer, or of what went unanswered: why


class Said(Protocol):
    """What two turns are compared by."""

    @property
    def role(self) -> str: ...
    @property
    def content(self) -> str: ...
    @property
    def payload(self) -> Any: ...
    @property
    def metadata(self) -> dict[str, Any]: ...


def append_round(
    user: UserProfile,
    session_id: str,
    sent: Sequence[NewMessage],
    answer: NewMessage | None,
    *,
    agent_id: str = "",
    source: str = "",
) -> Appended:
    """Appends a round to a session, which is made if it isn't there; in a transaction.

    Args:
        user: whose session it is.
        session_id: the application's id.
        sent: the conversation as the caller sent it, oldest first; of a longer one the newest `BATCH_MAX` count.
        answer: the model's; None when there is none.
        agent_id, source: of a new session.
    """
    session = locked_session(user, session_id, agent_id=agent_id, source=source)
    known = newest_turns(session, sent) if session.message_count else []
    # A history whose turns were all archived or deleted has nothing to be compared with, and is not new.
    first = _asking_from(sent) if session.message_count and not known else max(0, len(sent) - BATCH_MAX)
    return append(user, session_id, new_turns(known, sent[first:], answer))


def newest_turns(session: Session, sent: Sequence[NewMessage]) -> list[Message]:
    """The session's newest turns, oldest first: as many as were sent, and some more."""
    turns = session.messages.turns().filter(user_id=session.user_id).order_by("-sequence").only("sequence", *COMPARED)
    return list(turns[: min(len(sent), BATCH_MAX) + BEYOND])[::-1]


def live_from(known: Sequence[Message], sent: Sequence[NewMessage], boundary: int) -> int:
    """Where in what a caller sent the turns after a boundary of the session begin.

    Args:
        known: see `newest_turns`.
        sent: the conversation as the caller sent it, oldest first.
        boundary: sequence of the last turn before them.

    Returns:
        How many messages stand before them, a call never without its results; 0 where that can't be told.
    """
    history = sent[: _asking_from(sent)]
    beyond = max(0, len(history) - BATCH_MAX)
    if not known or known[0].sequence > boundary + 1:
        return 0
    edge = sum(turn.sequence <= boundary for turn in known)
    # Where words were said more than once there may be several answers: a turn too many is better than one too few.
    starts = [beyond + edge - shift for shift in _shifts(known, history[beyond:], edge)]
    start = min(max(0, min(starts, default=0)), len(history))
    while start and start < len(sent) and sent[start].role == Message.Role.TOOL:
        start -= 1
    return start


def _shifts(known: Sequence[Message], history: Sequence[NewMessage], edge: int) -> list[int]:
    """By how much places in `known` and in `history` may differ: all ways in which they agree wherever both have a
    turn, and end within some turns of each other; where a turn was edited or left out, as around the edge.
    """
    ours, theirs = _keys(known), _keys(history)
    same_end = len(ours) - len(theirs)
    near = range(same_end - BEYOND, min(same_end + BEYOND, len(ours) - 1) + 1)
    agreeing = [shift for shift in near if _agree(ours, theirs, shift)]
    blocks = [] if agreeing else [block for block in _in_both(known, history) if block.size]
    around = next((block for block in blocks if block.a + block.size > edge), blocks[-1] if blocks else None)
    return [around.a - around.b] if around else agreeing


def _agree(ours: Sequence[str], theirs: Sequence[str], shift: int) -> bool:
    """Whether `theirs`, that many places further on, says what `ours` does; they have to overlap."""
    pairs = zip(ours[max(0, shift) :], theirs[max(0, -shift) :], strict=False)
    return -shift < len(theirs) and all(one == other for one, other in pairs)


def new_turns(known: Sequence[Message], sent: Sequence[NewMessage], answer: NewMessage | None) -> list[NewMessage]:
    """What of a round is not in the session yet.

    Args:
        known: the session's newest turns, oldest first.
        sent: as the caller sent it, oldest first.
        answer: to it.
    """
    begun = _asking_from(sent)
    history, asking = sent[:begun], sent[begun:]
    missing, place = _after_history(known, history) if history else ([], _unfinished_from(known, asking))
    following = known[place:]
    repeated = _repeated([turn for turn in following if turn.role != Message.Role.ASSISTANT], asking)
    new = [*missing, *asking[repeated:]]
    if answer and (new or not any(_same(turn, answer) for turn in following)):
        new.append(answer)
    return new


def _asking_from(sent: Sequence[Said]) -> int:
    """Where what is to be answered begins: behind the last answer in it."""
    return len(sent) - len(list(takewhile(lambda turn: turn.role != Message.Role.ASSISTANT, reversed(sent))))


def _after_history(known: Sequence[Message], history: Sequence[NewMessage]) -> tuple[Sequence[NewMessage], int]:
    """What the history has behind the last turn that both have, and where in `known` that turn's successor is.

    Compared from the end: of turns that are alike the newest is meant.
    """
    newest = _in_both(known[::-1], history[::-1])[0]  # with nothing in common the one that ends the list, of no length
    if not newest.size:
        return history, len(known)
    missing, place = history[len(history) - newest.b :], len(known) - newest.a
    if missing and place < len(known) and _is_part_of(known[place], missing[0]):
        missing, place = missing[1:], place + 1
    return missing, len(known) if missing else place


def _in_both(ours: Sequence[Said], theirs: Sequence[Said]) -> list[Match]:
    """The stretches that are alike; one of no length ends the list."""
    return SequenceMatcher(None, _keys(ours), _keys(theirs), autojunk=False).get_matching_blocks()


def _is_part_of(known: Message, sent: NewMessage) -> bool:
    """Whether a turn is an answer that broke off, as far as one of both sides got it."""
    if sent.role != known.role or INCOMPLETE not in known.metadata:
        return False
    ours, theirs = known.content.strip(), sent.content.strip()
    return ours.startswith(theirs) or theirs.startswith(ours)


def _unfinished_from(known: Sequence[Message], asking: Sequence[NewMessage]) -> int:
    """Where the round begins that a call without history may repeat: the first of all, or one without a whole answer.

    A round that was answered is over: the same words after it are said once more.
    """
    if _keys([turn for turn in known if turn.role != Message.Role.ASSISTANT]) == _keys(asking):
        return 0
    finished = [
        number
        for number, turn in enumerate(known, 1)
        if turn.role == Message.Role.ASSISTANT and INCOMPLETE not in turn.metadata
    ]
    return finished[-1] if finished else 0


def _repeated(following: Sequence[Message], asking: Sequence[NewMessage]) -> int:
    """How many of the messages stand in the session already."""
    pairs = zip(_keys(following), _keys(asking), strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def _same(one: Said, other: Said) -> bool:
    return _key(one) == _key(other)


def _keys(turns: Sequence[Said]) -> list[str]:
    return [_key(turn) for turn in turns]


def _key(turn: Said) -> str:
    """What a turn says, however its sender wrote it down."""
    payload = turn.payload if isinstance(turn.payload, dict) else {}
    listed = payload["tool_calls"] if isinstance(payload.get("tool_calls"), list) else []
    calls = [part if not isinstance(part, dict) else (part.get("id"), part.get("function")) for part in listed]
    parts = [turn.role, turn.content.strip(), calls, payload.get("tool_call_id"), payload.get("parts")]
    return json.dumps(parts, sort_keys=True)
