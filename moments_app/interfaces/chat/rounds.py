"""A round consists of a person's message, committed before the upstream is called, and the answer, stored at the end.

A round can be serialized to records. If a process is killed, another process restores the round and stores the part of
the answer received so far. Storing a round twice has no effect, because the external ids of its turns contain the
round's id.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Self
from uuid import uuid4

from django.db.models import Q
from django.utils import timezone

from moments_app.interfaces.chat.memory import SOURCE
from moments_app.interfaces.chat.protocols import CHAT, PROTOCOLS, read_answer
from moments_app.interfaces.chat.request import ChatSession
from sessions_app.limited_operators import unlimited
from sessions_app.models import Event, UserProfile
from sessions_app.people.erase import ERASED_EVENT
from sessions_app.row_security import acting_for
from sessions_app.text.chat_messages import without_empty
from sessions_app.transcript.append import CONTEXT_ID, NewMessage, process_texts
from sessions_app.transcript.append_round import (
    INCOMPLETE,
    OpenRound,
    append_round,
    begin_round,
    end_round,
    question,
)

READ_BYTES = 16_777_216  # maximum bytes of an answer that are read for storing; the whole answer is relayed
INTERRUPTED = "interrupted"  # the process that relayed the answer died
CLOCKS = timedelta(minutes=1)  # maximum difference between the clocks of two hosts
Record = dict[str, Any]


@dataclass
class Round:
    """The messages of a call and the part of the answer received so far.

    Args:
        protocol: a key of `PROTOCOLS`.
        context_id: the id of the context that the model received; blank if there was none.
        round_id: included in the external ids of the turns.
        started_at: the time of the messages.
        begun: the stored messages; None until they are in the transcript.
        status: the HTTP status of the upstream's response; 0 before it responds.
        is_stream: whether the upstream responds with a stream.
        heard: the bytes of the answer received so far.
        incomplete: why the answer is incomplete; blank if it is complete.
    """

    session: ChatSession
    sent: Sequence[NewMessage]
    protocol: str = CHAT.name
    context_id: str = ""
    round_id: str = field(default_factory=lambda: f"{SOURCE}:{uuid4().hex}")
    started_at: datetime = field(default_factory=timezone.now)
    begun: OpenRound | None = None
    status: int = 0
    is_stream: bool = False
    heard: bytearray = field(default_factory=bytearray)
    incomplete: str = INTERRUPTED
    ended_at: datetime | None = None

    # --- in records ---

    def first_record(self) -> Record:
        """Return the first record, written before the upstream is called. It contains only messages not stored yet."""
        sent = [] if self.begun else [asdict(turn) | {"created_at": None} for turn in self.sent]
        return {
            "session": asdict(self.session),
            "sent": sent,
            "protocol": self.protocol,
            "context_id": self.context_id,
            "round_id": self.round_id,
            "started_at": self.started_at.isoformat(),
            "begun": asdict(self.begun) if self.begun else None,
        }

    def answered(self, status: int, *, is_stream: bool) -> Record:
        """Set the status and the kind of the upstream's response. Return the change as a record."""
        return self._read({"status": status, "is_stream": is_stream})

    def hear(self, part: bytes) -> Record:
        """Add a part of the answer, up to a total of `READ_BYTES`. Return it as a record."""
        return self._read({"part": part[: READ_BYTES - len(self.heard)].decode("latin-1")})

    def end(self, incomplete: str) -> Record:
        """Set the reason why the answer is incomplete. Return the change as a record."""
        return self._read({"incomplete": incomplete, "ended_at": timezone.now().isoformat()})

    @classmethod
    def from_records(cls, records: Sequence[Record]) -> Self:
        first, *others = records
        heard = cls(
            session=ChatSession(**first["session"]),
            sent=[NewMessage(**turn) for turn in first["sent"]],
            protocol=first.get("protocol", CHAT.name),  # missing in records of earlier releases
            context_id=first.get("context_id", ""),  # missing in records of earlier releases
            round_id=first["round_id"],
            started_at=datetime.fromisoformat(first["started_at"]),
            begun=OpenRound(**first["begun"]) if first["begun"] else None,
        )
        for record in others:
            heard._read(record)
        return heard

    def _read(self, record: Record) -> Record:
        self.status = record.get("status", self.status)
        self.is_stream = record.get("is_stream", self.is_stream)
        self.heard += record.get("part", "").encode("latin-1")
        self.incomplete = record.get("incomplete", self.incomplete)
        if "ended_at" in record:
            self.ended_at = datetime.fromisoformat(record["ended_at"])
        return record

    # --- in the transcript ---

    def begin(self) -> OpenRound:
        said = self._said()
        process_texts(question(said))
        with self._acting(create=True) as user:
            assert user is not None  # `create` creates the person
            return begin_round(user, self.session.session_id, said, **self._named())

    def store(self) -> bool:
        """Store the answer, and the messages if they are not stored yet. Queue the jobs that become due.

        Returns:
            False if the round was dropped, because the person or the session was deleted in the meantime.
        """
        answer, unanswered = self._answer()
        process_texts([answer] if answer else [])
        with self._acting() as user:
            if user and self.begun:
                return end_round(user, self.begun, answer, round_id=self.round_id, unanswered=unanswered)
            if user:
                self._append(user, answer, unanswered)
        if user is None and (self.begun or self._may_be_erased()):
            return False
        if user is None:
            with self._acting(create=True) as user:
                assert user is not None  # `create` creates the person
                self._append(user, answer, unanswered)
        return True

    def _acting(self, *, create: bool = False) -> AbstractContextManager[UserProfile | None]:
        return acting_for(self.session.user_id, application=self.session.application, create=create, holding=True)

    def _append(self, user: UserProfile, answer: NewMessage | None, unanswered: str) -> None:
        sent = [turn.with_fields(created_at=self.started_at) for turn in self._said()]
        if unanswered and sent:
            sent[-1].metadata[INCOMPLETE] = unanswered
        append_round(user, self.session.session_id, sent, answer, **self._named())

    def _said(self) -> list[NewMessage]:
        return [turn.with_fields(metadata=turn.metadata | {"source": SOURCE}) for turn in self.sent]

    def _named(self) -> dict[str, str]:
        return {"agent_id": self.session.agent_id, "source": SOURCE, "round_id": self.round_id}

    def _may_be_erased(self) -> bool:
        """Return whether any person was erased since the round started. The log doesn't say which person."""
        erased = Event.objects.filter(type=ERASED_EVENT, created_at__gte=self.started_at - CLOCKS)
        with unlimited():  # the event of an erasure belongs to no person
            return erased.filter(Q(application=self.session.application) | Q(application=None)).exists()

    def _answer(self) -> tuple[NewMessage | None, str]:
        """Return the answer as a turn and an empty string, or None and the reason why there is no answer."""
        protocol = PROTOCOLS[self.protocol]
        answer = read_answer(protocol.answer(), bytes(self.heard), is_stream=self.is_stream)
        # Some callers disconnect after reading the end, before the relay has finished.
        why = "" if answer.finish_reason else self.incomplete or "unfinished"
        if 400 <= self.status < 500:
            return None, "refused"
        metadata = {"source": SOURCE, CONTEXT_ID: self.context_id, INCOMPLETE: why}
        turn = answer.turn(without_empty(metadata), is_whole=not why)
        return (replace(turn, created_at=self.ended_at), "") if turn else (None, why)
