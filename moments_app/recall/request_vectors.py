"""Request vectors from the embeddings endpoint, in batches and with several calls in parallel.

An endpoint takes some tenths of a second for a batch, so parallel calls save time. After one call fails, no further
call starts. Vectors of successful calls are saved, so their texts are not sent again. The calling thread records all
calls, because it has the database connection.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING

import structlog
from django.conf import settings

from moments_app.engines.interface import CallRecord, EngineError

if TYPE_CHECKING:
    from moments_app.engines.embeddings import Embedder

HARMLESS = "Good morning."

logger = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Text:
    """A text to embed.

    Args:
        kind: a key of `KINDS`.
        pk: primary key of the fact, moment, turn or item.
        user_id: primary key of its person; None for a shard's fact and for an item that belongs to no person.
        said_at: the time of the message or statement.
    """

    kind: str
    pk: int
    user_id: int | None
    said_at: datetime
    text: str


# Texts with their vectors. For a rejected text, the endpoint's error replaces the vector.
Vectors = list[tuple[Text, list[float] | str]]


@dataclass
class Answered:
    """The result of requesting vectors for some texts.

    Args:
        made: the texts with a vector or a rejection.
        error: the error that prevented the vectors of other texts. Of several errors, this is the one with the longest
            wait.
    """

    made: Vectors = field(default_factory=list)
    left: list[Text] = field(default_factory=list)
    error: EngineError | None = None


def vectors_in_parallel(
    texts: Sequence[Text], embedder: "Embedder", progress: Callable[[int, int], object] = lambda done, total: None
) -> Answered:
    """Return the vectors of texts. Sends `EMBEDDING__BATCH_SIZE` texts per call, and several calls in parallel.

    Args:
        texts: any number of texts.
        progress: called with the number of finished texts and the total.
    """
    size = settings.EMBEDDING.batch_size
    batches = deque(texts[start : start + size] for start in range(0, len(texts), size))
    asking = _BatchThreads(batches, embedder)
    asking.begin(min(embedder.calls_at_once, len(batches)))
    answered = Answered()
    for outcome in asking.outcomes():
        _collect(answered, outcome, embedder)
        progress(len(answered.made), len(texts))
    answered.left += [text for batch in batches for text in batch]
    return answered


@dataclass(frozen=True)
class _Outcome:
    batch: Sequence[Text]
    result: Vectors | Exception
    calls: list[CallRecord]


class _BatchThreads:
    """Threads that send one batch after another, until none is left or a call fails.

    They are daemon threads, so a worker can exit without waiting for the endpoint.
    """

    def __init__(self, batches: "deque[Sequence[Text]]", embedder: "Embedder") -> None:
        self._batches, self._embedder = batches, embedder
        self._outcomes: SimpleQueue[_Outcome | None] = SimpleQueue()
        self._has_failed = threading.Event()
        self._running = 0

    def begin(self, number: int) -> None:
        self._running = number
        for _ in range(number):
            threading.Thread(target=self._work, name="embedding", daemon=True).start()

    def outcomes(self) -> Iterator[_Outcome]:
        """Yield the result of each batch. When the caller stops reading, no further batch starts."""
        try:
            while self._running:
                if (outcome := self._outcomes.get()) is None:
                    self._running -= 1
                else:
                    yield outcome
        finally:
            self._has_failed.set()

    def _work(self) -> None:
        try:
            while not self._has_failed.is_set():
                self._outcomes.put(self._asked(self._batches.popleft()))
        except IndexError:
            pass  # another thread took the last batch
        finally:
            self._outcomes.put(None)

    def _asked(self, batch: Sequence[Text]) -> _Outcome:
        calls: list[CallRecord] = []
        try:
            return _Outcome(batch, vectors_of(batch, self._embedder.recording(calls.append)), calls)
        except Exception as error:
            self._has_failed.set()
            return _Outcome(batch, error, calls)


def _collect(answered: Answered, outcome: _Outcome, embedder: "Embedder") -> None:
    """Record the calls of a batch, and add its vectors.

    Raises:
        Exception: an error not caused by the endpoint.
    """
    for call in outcome.calls:
        # When parallel calls fail together, only the first failure says something new about the endpoint.
        embedder.record(replace(call, is_repeated_failure=answered.error is not None and bool(call.error_kind)))
    if isinstance(outcome.result, list):
        answered.made += outcome.result
        return
    if not isinstance(outcome.result, EngineError):
        raise outcome.result
    answered.left += outcome.batch
    if answered.error is None or (outcome.result.retry_after or 0) > (answered.error.retry_after or 0):
        answered.error = outcome.result


def vectors_of(texts: Sequence[Text], embedder: "Embedder") -> Vectors:
    """Return the vectors of texts.

    If the endpoint rejects a batch, retry each half, so that one bad text does not affect the others.

    Raises:
        EngineError: the endpoint gave no valid answer.
    """
    if not texts:
        return []
    try:
        return list(zip(texts, embedder.embed([text.text for text in texts]), strict=True))
    except EngineError as error:
        if error.kind != "rejected":
            raise
        if len(texts) == 1:
            if not _takes_texts(embedder):
                raise  # the endpoint rejects every text
            logger.warning("text refused by the embeddings endpoint", kind=texts[0].kind, pk=texts[0].pk)
            return [(texts[0], str(error))]
    middle = len(texts) // 2
    return vectors_of(texts[:middle], embedder) + vectors_of(texts[middle:], embedder)


def _takes_texts(embedder: "Embedder") -> bool:
    """Return whether the endpoint accepts a harmless text."""
    try:
        embedder.embed([HARMLESS])
    except EngineError as error:
        if error.kind == "rejected":
            return False
        raise
    return True
