"""`append_round`: add the new messages of a call to a chat model, and the model's answer, to the transcript.

With each call, chat clients send their whole history, or the end of it, or only the newest message. They retry calls
whose answer was lost, and edit earlier messages. The new messages are found by comparing the history with the session's
newest turns. The session is locked, so concurrent calls can't add the same message twice. If it is unclear whether a
message is a retry or a new message with the same text, it is added, because a duplicate turn is better than a lost one.

`append_round` appends a round in one transaction. Alternatively, `begin_round` appends the caller's messages, and later
`end_round` appends the answer. With a `round_id`, the turns have external ids, so each of these calls can be retried.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import Match, SequenceMatcher
from itertools import takewhile
from typing import Any, Protocol

from sessions_app.models import Message, Session, UserProfile
from sessions_app.models.session import NamedSession
from sessions_app.transcript.append import BATCH_MAX, Appended, NewMessage, append

# Maximum turns after the last turn that the caller knows. They may be rounds stored in the meantime, or answers to
# retried calls.
MAX_FOLLOWING = 20
COMPARED_FIELDS = ("role", "content", "payload", "metadata")
# Includes the session, because otherwise each turn would need another query.
READ_FIELDS = ("session", "sequence", "external_id", *COMPARED_FIELDS)
INCOMPLETE = "incomplete"  # metadata key for the reason why an answer is incomplete or missing
_ANSWER = ":answer"  # the end of an answer's external id


class ComparedTurn(Protocol):
    """The fields that determine whether two turns are the same."""

    @property
    def role(self) -> str: ...
    @property
    def content(self) -> str: ...
    @property
    def payload(self) -> Any: ...
    @property
    def metadata(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class OpenRound:
    """A round whose messages are in the transcript."""

    user_pk: int  # primary keys, because another person or session may later have the same id
    session_pk: int
    after: int  # an answer to the round must have a higher sequence number than this
    last: int | None  # primary key of the newest message that the round added; None if it added none


def append_round(
    user: UserProfile,
    session_id: str,
    sent: Sequence[NewMessage],
    answer: NewMessage | None,
    *,
    agent_id: str = "",
    source: str = "",
    round_id: str = "",
) -> Appended:
    """Append a round to a session in the caller's transaction. The session is created if it doesn't exist.

    Args:
        sent: The caller's conversation, oldest first. Only the newest `BATCH_MAX` messages are used.
        answer: The model's answer, or None.
        agent_id, source: The values for a new session.
        round_id: An id that makes the call idempotent, or blank.
    """
    session = Session.objects.ensure_locked(NamedSession(user, session_id, agent_id, source))
    new, following = _new_messages(session, _with_ids(sent, round_id))
    if answer and (new or not _is_stored(following, answer)):
        new.append(_with_answer_id(answer, round_id))
    return append(user, session_id, new)


def begin_round(
    user: UserProfile,
    session_id: str,
    sent: Sequence[NewMessage],
    *,
    round_id: str,
    agent_id: str = "",
    source: str = "",
) -> OpenRound:
    """Append a caller's messages before they are answered. See `append_round`."""
    session = Session.objects.ensure_locked(NamedSession(user, session_id, agent_id, source))
    new, following = _new_messages(session, _with_ids(sent, round_id))
    after = following[0].sequence - 1 if following else session.last_sequence
    appended = append(user, session_id, new)
    if not new:
        return OpenRound(user.pk, session.pk, after, None)
    return OpenRound(user.pk, session.pk, appended.session.last_sequence, appended.messages[-1][0].pk)


def end_round(
    user: UserProfile, begun: OpenRound, answer: NewMessage | None, *, round_id: str, unanswered: str = ""
) -> bool:
    """Append the answer to a round, or record why it is unanswered, in the caller's transaction.

    Return False if the session, and with it the round, no longer exists.
    """
    session = Session.objects.for_user(user).locked().filter(pk=begun.session_pk).first()
    if session is None or user.pk != begun.user_pk:
        return False
    if answer is None and begun.last is not None:
        _mark_unanswered(session, begun.last, unanswered)
    elif answer and not _is_stored(_possible_answers(session, begun), answer):
        append(user, session.session_id, [_with_answer_id(answer, round_id)])
    return True


def _mark_unanswered(session: Session, last: int, unanswered: str) -> None:
    for message in session.messages.turns().filter(user_id=session.user_id, pk=last):
        message.metadata = {INCOMPLETE: unanswered} | message.metadata
        message.save(update_fields=["metadata"])


def _possible_answers(session: Session, begun: OpenRound) -> Iterator[Message]:
    """Yield the turns that may be the answer to a round. A later call may have added the answer as part of its history.

    If the round repeats an earlier round, include the answer to the earlier one.
    """
    following = session.messages.turns().filter(user_id=session.user_id, sequence__gt=begun.after)
    answers = following.filter(role=Message.Role.ASSISTANT).only(*READ_FIELDS).order_by("sequence")
    for turn in answers[: BATCH_MAX + MAX_FOLLOWING]:
        if begun.last is None or not (turn.external_id or "").endswith(_ANSWER):
            yield turn


def _is_stored(following: Iterable[Message], answer: NewMessage) -> bool:
    """Return whether the answer is among these turns. If it is marked as incomplete, remove the mark."""
    key = _key(answer)
    same = [turn for turn in following if _key(turn) == key]
    if same and INCOMPLETE not in answer.metadata and all(INCOMPLETE in turn.metadata for turn in same):
        same[-1].metadata = answer.metadata
        same[-1].save(update_fields=["metadata"])
    return bool(same)


def _new_messages(session: Session, sent: Sequence[NewMessage]) -> tuple[list[NewMessage], Sequence[Message]]:
    """Return the messages that a session doesn't have yet, and its turns after the end of the caller's history."""
    known = newest_turns(session, sent) if session.message_count else []
    # If all turns of the session were archived or deleted, the history can't be compared. The session is not new, so
    # assume that it had this history.
    first = _question_start(sent) if session.message_count and not known else max(0, len(sent) - BATCH_MAX)
    return new_turns(known, sent[first:])


def _with_ids(sent: Sequence[NewMessage], round_id: str) -> list[NewMessage]:
    return [turn.with_fields(external_id=f"{round_id}:{n}") if round_id else turn for n, turn in enumerate(sent)]


def _with_answer_id(answer: NewMessage, round_id: str) -> NewMessage:
    return answer.with_fields(external_id=f"{round_id}{_ANSWER}") if round_id else answer


def newest_turns(session: Session, sent: Sequence[NewMessage]) -> list[Message]:
    """Return the session's newest turns, oldest first: as many as were sent, and `MAX_FOLLOWING` more."""
    turns = session.messages.turns().filter(user_id=session.user_id).order_by("-sequence").only(*READ_FIELDS)
    return list(turns[: min(len(sent), BATCH_MAX) + MAX_FOLLOWING])[::-1]


def live_from(known: Sequence[Message], sent: Sequence[NewMessage], boundary: int) -> int:
    """Return the index of the caller's first message after a boundary of the session, or 0 if it can't be found.

    The index never separates a tool call from its results.

    Args:
        known: The session's newest turns, as `newest_turns` returns them.
        sent: The caller's conversation, oldest first.
        boundary: The sequence number of the last turn before the boundary.
    """
    history = sent[: _question_start(sent)]
    beyond = max(0, len(history) - BATCH_MAX)
    if not known or known[0].sequence > boundary + 1:
        return 0
    edge = sum(turn.sequence <= boundary for turn in known)
    # Repeated texts may fit several positions. Choose the earliest, because an extra turn is better than a missing one.
    starts = [beyond + edge - shift for shift in _possible_offsets(known, history[beyond:], edge)]
    start = min(max(0, min(starts, default=0)), len(history))
    while start and start < len(sent) and sent[start].role == Message.Role.TOOL:
        start -= 1
    return start


def _possible_offsets(known: Sequence[Message], history: Sequence[NewMessage], edge: int) -> list[int]:
    """Return the offsets at which `history` may be aligned with `known`.

    At such an offset, all overlapping turns are the same, and the two ends are within `MAX_FOLLOWING` turns of each
    other. If there is no such offset, because a turn was edited or left out, return the offset of the common turns
    around the index `edge`.
    """
    ours, theirs = _keys(known), _keys(history)
    same_end = len(ours) - len(theirs)
    near = range(same_end - MAX_FOLLOWING, min(same_end + MAX_FOLLOWING, len(ours) - 1) + 1)
    agreeing = [shift for shift in near if _is_same_at(ours, theirs, shift)]
    blocks = [] if agreeing else [block for block in _common_blocks(known, history) if block.size]
    around = next((block for block in blocks if block.a + block.size > edge), blocks[-1] if blocks else None)
    return [around.a - around.b] if around else agreeing


def _is_same_at(ours: Sequence[str], theirs: Sequence[str], shift: int) -> bool:
    """Return whether `theirs`, shifted by this offset, overlaps `ours` and all overlapping turns are the same."""
    pairs = zip(ours[max(0, shift) :], theirs[max(0, -shift) :], strict=False)
    return -shift < len(theirs) and all(one == other for one, other in pairs)


def new_turns(known: Sequence[Message], sent: Sequence[NewMessage]) -> tuple[list[NewMessage], Sequence[Message]]:
    """Return the messages that a session doesn't have yet, and its turns after the end of the caller's history.

    Both arguments are ordered oldest first.
    """
    start = _question_start(sent)
    history, question = sent[:start], sent[start:]
    missing, place = _after_history(known, history) if history else ([], _unanswered_start(known, question))
    following = known[place:]
    repeated = _common_start([turn for turn in following if turn.role != Message.Role.ASSISTANT], question)
    return [*missing, *question[repeated:]], following


def question(sent: Sequence[NewMessage]) -> Sequence[NewMessage]:
    """Return the messages after the last answer, which the session is unlikely to have yet."""
    return sent[_question_start(sent) :]


def _question_start(sent: Sequence[ComparedTurn]) -> int:
    return len(sent) - len(list(takewhile(lambda turn: turn.role != Message.Role.ASSISTANT, reversed(sent))))


def _after_history(known: Sequence[Message], history: Sequence[NewMessage]) -> tuple[Sequence[NewMessage], int]:
    """Return the part of the history after the last common turn, and the index in `known` after this turn."""
    # Compare from the end, to find the newest of several equal turns. Without a common turn, the block has size 0.
    newest = _common_blocks(known[::-1], history[::-1])[0]
    if not newest.size:
        return history, len(known)
    missing, place = history[len(history) - newest.b :], len(known) - newest.a
    if missing and place < len(known) and _is_part_of(known[place], missing[0]):
        missing, place = missing[1:], place + 1
    return missing, len(known) if missing else place


def _common_blocks(ours: Sequence[ComparedTurn], theirs: Sequence[ComparedTurn]) -> list[Match]:
    """Return the matching blocks. The last one has size 0."""
    return SequenceMatcher(None, _keys(ours), _keys(theirs), autojunk=False).get_matching_blocks()


def _is_part_of(known: Message, sent: NewMessage) -> bool:
    """Return whether a turn is an interrupted answer, and its text starts with the sent text or vice versa."""
    if sent.role != known.role or INCOMPLETE not in known.metadata:
        return False
    ours, theirs = known.content.strip(), sent.content.strip()
    return ours.startswith(theirs) or theirs.startswith(ours)


def _unanswered_start(known: Sequence[Message], question: Sequence[NewMessage]) -> int:
    """Return the index in `known` of the first turn that a call without history may repeat.

    Such a call can repeat a round if it is the only one in the session, or if it has no complete answer. After an
    answered round, the same text is a new message. But a tool result belongs to the newest turn with its call.
    """
    if _keys([turn for turn in known if turn.role != Message.Role.ASSISTANT]) == _keys(question):
        return 0
    call_id = _payload(question[0]).get("tool_call_id") if question else None
    finished = [
        number
        for number, turn in enumerate(known, 1)
        if turn.role == Message.Role.ASSISTANT and INCOMPLETE not in turn.metadata
        if call_id is None or any(call.get("id") == call_id for call in _calls(turn))
    ]
    return finished[-1] if finished else 0


def _common_start(following: Sequence[Message], question: Sequence[NewMessage]) -> int:
    pairs = zip(_keys(following), _keys(question), strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def _keys(turns: Sequence[ComparedTurn]) -> list[str]:
    return [_key(turn) for turn in turns]


def _key(turn: ComparedTurn) -> str:
    """Return a key for comparing turns.

    It ignores the formatting of their content, and the parts of an answer with a text, because only clients send them.
    """
    payload = _payload(turn)
    calls = [(call.get("id"), call.get("function")) for call in _calls(turn)]
    text = turn.content.strip()
    parts = None if turn.role == Message.Role.ASSISTANT and text else payload.get("parts")
    return json.dumps([turn.role, text, calls, payload.get("tool_call_id"), parts], sort_keys=True)


def _payload(turn: ComparedTurn) -> dict[str, Any]:
    return turn.payload if isinstance(turn.payload, dict) else {}


def _calls(turn: ComparedTurn) -> list[dict[str, Any]]:
    """Return the turn's tool calls."""
    calls = _payload(turn).get("tool_calls")
    return [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
