"""A round is a person's message and the answer. Rounds survive a killed process and a database outage.

The message is committed before the upstream is called. While the database is down, it is spooled to disk instead. Each
part of the answer is spooled before it is passed on. The end of the answer is passed on once the answer is committed or
the spool is synced to disk. So if the client received the end of an answer, the round is stored, or will be at the next
start. If both the commit and the spool fail, the call still continues, and the response reports it.

If a round is left in the spool, it is *replayed*: the first web process of the host that finds it stores the message
and the part of the answer received so far. Each process checks the spool when it starts and every few seconds. Each
call first replays the rounds of its session, so rounds are stored in order. Storing a round twice has no effect,
because the external ids of its turns contain the round's id.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Self
from uuid import uuid4
from weakref import WeakKeyDictionary

import structlog
from django.db import DatabaseError, InterfaceError, OperationalError
from django.db.models import Q
from django.utils import timezone

from moments_app.interfaces.asgi import in_chat_thread
from moments_app.interfaces.chat.errors import FAILURES
from moments_app.interfaces.chat.protocols import CHAT, PROTOCOLS, read_answer
from moments_app.interfaces.chat.request import ChatSession
from sessions_app.limited_operators import unlimited
from sessions_app.models import Event, UserProfile
from sessions_app.people.erase import ERASED_EVENT
from sessions_app.row_security import acting_for
from sessions_app.text.chat_messages import without_empty
from sessions_app.transcript import spool
from sessions_app.transcript.append import CONTEXT_ID, NewMessage, process_texts
from sessions_app.transcript.append_round import (
    INCOMPLETE,
    OpenRound,
    append_round,
    begin_round,
    end_round,
    question,
)
from sessions_app.transcript.spool import Spool

READ_BYTES = 16_777_216  # maximum bytes of an answer that are read for storing; the whole answer is relayed
INTERRUPTED = "interrupted"  # the process that relayed the answer died
CLOCK_SKEW = timedelta(minutes=1)  # maximum difference between the clocks of two hosts
SOURCE = "chat"  # origin of new sessions; also stored in the metadata of turns
STORED, SPOOLED, UNSTORED = "stored", "spooled", "unstored"
STORE_SECONDS = 2.0  # maximum wait for storing an answer; after that, the round stays in the spool
RETRY_SECONDS = (0.5, 2.0, 10.0)  # waits before each retry to store a round that could not be spooled

CHECK_SECONDS = 2.0  # seconds between checks of a spool with rounds
IDLE_CHECK_SECONDS = 10.0  # seconds between checks of an empty spool
DATABASE_DOWN = (InterfaceError, OperationalError, RuntimeError)  # also raised if the embedded server is down
DATABASE_DOWN_PAUSE = 5.0  # maximum seconds between two replays of a session's rounds if the database is down
DATABASE_DOWN_MAX = 3  # number of database failures after which a check of the spool ends
LONGEST_PAUSE = 300.0  # maximum seconds between two replays of a round that fails for other reasons

logger = structlog.get_logger(__name__)

_tasks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[None]] = WeakKeyDictionary()
# The number of consecutive failures and the time of the next attempt, keyed by file, or by session if the database was
# down.
_failures: dict[str, tuple[int, float]] = {}

Record = dict[str, Any]


@dataclass
class Round:
    """The messages of a call and the part of the answer received so far."""

    session: ChatSession
    sent: Sequence[NewMessage]
    protocol: str = CHAT.name  # a key of `PROTOCOLS`
    context_id: str = ""  # id of the context that the model received; blank if it received none
    round_id: str = field(default_factory=lambda: f"{SOURCE}:{uuid4().hex}")  # part of the turns' external ids
    started_at: datetime = field(default_factory=timezone.now)  # the time of the messages
    stored_messages: OpenRound | None = None  # None until the messages are in the transcript
    status: int = 0  # the HTTP status of the upstream's response; 0 before it responds
    is_stream: bool = False
    received: bytearray = field(default_factory=bytearray)
    incomplete: str = INTERRUPTED  # why the answer is incomplete; blank if it is complete
    ended_at: datetime | None = None

    # --- records in the spool; each method that changes the round returns a record of the change ---

    def first_record(self) -> Record:
        """Return the first record, written before the upstream is called. It contains only messages not stored yet."""
        sent = [] if self.stored_messages else [asdict(turn) | {"created_at": None} for turn in self.sent]
        return {
            "session": asdict(self.session),
            "sent": sent,
            "protocol": self.protocol,
            "context_id": self.context_id,
            "round_id": self.round_id,
            "started_at": self.started_at.isoformat(),
            "begun": asdict(self.stored_messages) if self.stored_messages else None,
        }

    def set_response(self, status: int, *, is_stream: bool) -> Record:
        return self._apply({"status": status, "is_stream": is_stream})

    def add_part(self, part: bytes) -> Record:
        """Add a part of the answer, up to a total of `READ_BYTES`."""
        return self._apply({"part": part[: READ_BYTES - len(self.received)].decode("latin-1")})

    def end(self, incomplete: str) -> Record:
        return self._apply({"incomplete": incomplete, "ended_at": timezone.now().isoformat()})

    @classmethod
    def from_records(cls, records: Sequence[Record]) -> Self:
        first, *others = records
        restored = cls(
            session=ChatSession(**first["session"]),
            sent=[NewMessage(**turn) for turn in first["sent"]],
            protocol=first.get("protocol", CHAT.name),  # missing in records of earlier releases
            context_id=first.get("context_id", ""),  # missing in records of earlier releases
            round_id=first["round_id"],
            started_at=datetime.fromisoformat(first["started_at"]),
            stored_messages=OpenRound(**first["begun"]) if first["begun"] else None,
        )
        for record in others:
            restored._apply(record)
        return restored

    def _apply(self, record: Record) -> Record:
        self.status = record.get("status", self.status)
        self.is_stream = record.get("is_stream", self.is_stream)
        self.received += record.get("part", "").encode("latin-1")
        self.incomplete = record.get("incomplete", self.incomplete)
        if "ended_at" in record:
            self.ended_at = datetime.fromisoformat(record["ended_at"])
        return record

    # --- in the transcript ---

    def store_messages(self) -> OpenRound:
        turns = self._marked_turns()
        process_texts(question(turns))
        with self._acting(create=True) as user:
            assert user is not None  # `create` creates the person
            return begin_round(user, self.session.session_id, turns, **self._origin())

    def store(self) -> bool:
        """Store the answer, and the messages if they are not stored yet.

        Return False if the round was dropped, because the person or the session was deleted in the meantime.
        """
        answer, unanswered = self._answer()
        process_texts([answer] if answer else [])
        with self._acting() as user:
            if user and self.stored_messages:
                return end_round(user, self.stored_messages, answer, round_id=self.round_id, unanswered=unanswered)
            if user:
                self._append(user, answer, unanswered)
        if user is None and (self.stored_messages or self._may_be_erased()):
            return False
        if user is None:
            with self._acting(create=True) as user:
                assert user is not None  # `create` creates the person
                self._append(user, answer, unanswered)
        return True

    def _acting(self, *, create: bool = False) -> AbstractContextManager[UserProfile | None]:
        return acting_for(self.session.user_id, application=self.session.application, create=create, for_write=True)

    def _append(self, user: UserProfile, answer: NewMessage | None, unanswered: str) -> None:
        sent = [turn.with_fields(created_at=self.started_at) for turn in self._marked_turns()]
        if unanswered and sent:
            sent[-1].metadata[INCOMPLETE] = unanswered
        append_round(user, self.session.session_id, sent, answer, **self._origin())

    def _marked_turns(self) -> list[NewMessage]:
        return [turn.with_fields(metadata=turn.metadata | {"source": SOURCE}) for turn in self.sent]

    def _origin(self) -> dict[str, str]:
        return {"agent_id": self.session.agent_id, "source": SOURCE, "round_id": self.round_id}

    def _may_be_erased(self) -> bool:
        """Return whether any person was erased since the round started. The log doesn't say which person."""
        erased = Event.objects.filter(type=ERASED_EVENT, created_at__gte=self.started_at - CLOCK_SKEW)
        with unlimited():  # the event of an erasure belongs to no person
            return erased.filter(Q(application=self.session.application) | Q(application=None)).exists()

    def _answer(self) -> tuple[NewMessage | None, str]:
        """Return the answer as a turn and an empty string, or None and the reason why there is no answer."""
        protocol = PROTOCOLS[self.protocol]
        answer = read_answer(protocol.answer(), bytes(self.received), is_stream=self.is_stream)
        # Some callers disconnect after reading the end, before the relay has finished.
        why = "" if answer.finish_reason else self.incomplete or "unfinished"
        if 400 <= self.status < 500:
            return None, "refused"
        metadata = {"source": SOURCE, CONTEXT_ID: self.context_id, INCOMPLETE: why}
        turn = answer.turn(without_empty(metadata), is_whole=not why)
        return (replace(turn, created_at=self.ended_at), "") if turn else (None, why or "empty")


class WriteAhead:
    """A round in progress, and its file in the spool, or None if the file can't be written."""

    def __init__(self, round: Round, file: Spool | None) -> None:
        self.round, self._spool = round, file
        self.message_outcome = SPOOLED if self._is_spooled else UNSTORED
        if round.stored_messages:
            self.message_outcome = STORED
        self.outcome = ""  # the outcome of the answer: `STORED`, `SPOOLED` or `UNSTORED`; blank until `store_answer`
        self._failure: Exception | None = None

    @classmethod
    async def begin(cls, round: Round, timeout: float) -> "WriteAhead":
        """Commit the message. If that fails or exceeds the timeout, spool it."""
        try:
            round.stored_messages = await asyncio.wait_for(in_chat_thread(round.store_messages), timeout)
        except Exception as error:
            logger.warning("a message waits in the spool", error=type(error).__name__)
        return cls(round, await _create_file(round))

    @property
    def _is_spooled(self) -> bool:
        return self._spool is not None and self._spool.is_whole

    def set_response(self, status: int, *, is_stream: bool) -> None:
        self._write(self.round.set_response(status, is_stream=is_stream))

    def add_part(self, part: bytes) -> None:
        """Record a part of the answer, unless its outcome is already known."""
        if not self.outcome:
            self._write(self.round.add_part(part))

    def _write(self, record: Record) -> None:
        if self._spool:
            self._spool.add(record)

    async def store_answer(self, incomplete: str) -> str:
        """Store the answer in the transcript. If that fails, leave the round in the spool. Return the outcome."""
        self._write(self.round.end(incomplete))
        if not self._is_spooled:
            FAILURES.labels("spool").inc()
        try:
            is_stored = await asyncio.wait_for(in_chat_thread(self.round.store), STORE_SECONDS)
        except Exception as error:
            await self._leave_in_spool(error)
        else:
            self._discard_file(is_stored=is_stored)
        return self.outcome

    async def _leave_in_spool(self, failure: Exception) -> None:
        if self._spool:
            await asyncio.to_thread(self._spool.sync)
        self._failure = failure
        if self._spool and self._spool.is_whole:
            self._spool.release()
            self._spool, self.outcome = None, SPOOLED
            logger.warning("a round waits in the spool", error=type(failure).__name__)
        else:
            self.outcome = UNSTORED

    def _discard_file(self, *, is_stored: bool) -> None:
        if self._spool:
            self._spool.discard()
        if not is_stored:
            logger.info("a round was dropped with its session")
        self._spool, self.outcome = None, STORED if is_stored else UNSTORED

    async def retry(self) -> None:
        """Retry storing a round that is neither stored nor spooled. The client already has the answer."""
        if self.outcome != UNSTORED or self._failure is None:
            return None
        for wait in RETRY_SECONDS:
            if not isinstance(self._failure, DatabaseError | TimeoutError | RuntimeError):
                break
            await asyncio.sleep(wait)
            try:
                return self._discard_file(is_stored=await in_chat_thread(self.round.store))
            except Exception as error:
                self._failure = error
        FAILURES.labels("store").inc()
        logger.error("a round was not stored", error=type(self._failure).__name__, status=self.round.status)
        if self._spool:
            self._spool.release()  # another process can store the round from the file


async def _create_file(round: Round) -> Spool | None:
    """Create the file of a round in the spool, and sync it to disk if the message isn't committed."""
    session = round.session
    make = partial(
        Spool.create, session.user_id, session.session_id, round.first_record(), application=session.application
    )
    try:
        if round.stored_messages:
            return make()
        file = await asyncio.to_thread(make)
    except OSError as error:
        logger.error("the spool can't be written", error=error.strerror)
        return None
    await asyncio.to_thread(file.sync)
    return file


# --- replay ---


def start_replaying() -> None:
    """Start the task that replays rounds in this event loop, unless it is running."""
    loop = asyncio.get_running_loop()
    if loop not in _tasks:
        _tasks[loop] = loop.create_task(_replay_forever())


async def _replay_forever() -> None:
    while True:
        pause = IDLE_CHECK_SECONDS
        try:
            if spool.orphans():
                pause = CHECK_SECONDS
                await in_chat_thread(replay_due)
        except Exception as error:
            logger.error("the spool can't be read", error=type(error).__name__)
        await asyncio.sleep(pause)


def replay_due() -> None:
    """Replay the rounds in the spool, except recently failed ones. Sessions with the most failures come last."""
    orphans = spool.orphans()
    for key in set(_failures) - {_file(path) for path in orphans} - {spool.session_of(path) for path in orphans}:
        _failures.pop(key, None)
    orphans.sort(key=lambda path: _failures.get(spool.session_of(path), (0, 0.0))[0])
    replay(path for path in orphans if _is_due(_file(path)) and _is_due(spool.session_of(path)))


def replay_session(session: ChatSession) -> None:
    """Replay the rounds of a session. If another process is storing one, wait for it."""
    left = spool.unstored_files(session.user_id, session.session_id, session.application)
    replay((path for path in left if _is_due(_file(path))), patiently=True)


def replay(paths: Iterable[Path], *, patiently: bool = False) -> None:
    """Store rounds from the spool. A round that fails stays there.

    Args:
        patiently: whether to wait if another process is storing the same round.
    """
    database_failures = 0
    for path in paths:
        try:
            _replay_one(path, patiently)
        except DATABASE_DOWN as error:
            database_failures += 1
            _note_failure(spool.session_of(path), error, DATABASE_DOWN_PAUSE)
        except Exception as error:
            _note_failure(_file(path), error, LONGEST_PAUSE)
        if database_failures == DATABASE_DOWN_MAX:
            return


def _replay_one(path: Path, patiently: bool) -> None:
    with spool.claimed(path, patiently=patiently) as records:
        if records:
            is_stored = Round.from_records(records).store()
            logger.info("a round was stored from the spool" if is_stored else "a round was dropped with its session")


def _file(path: Path) -> str:
    """Return the name that the file had before a process claimed it."""
    return path.name.removesuffix(spool.CLAIMED)


def _is_due(key: str) -> bool:
    return _failures.get(key, (0, 0.0))[1] <= time.monotonic()


def _note_failure(key: str, error: Exception, longest: float) -> None:
    count, _ = _failures.get(key, (0, 0.0))
    _failures[key] = (count + 1, time.monotonic() + min(CHECK_SECONDS * 2**count, longest))
    logger.warning("a round stays in the spool", error=type(error).__name__, tries=count + 1)
