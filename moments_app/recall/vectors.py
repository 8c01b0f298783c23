"""Asking the embeddings endpoint for vectors: batches of texts, several calls under way at a time.

An endpoint takes some tenths of a second for a batch, in which a job would only wait. No further call begins once one
has found the endpoint unable, and what the others were answered is kept: nothing is asked for twice. What is known of
calls is put on record by the thread that asked for them all, which has the database's connection.
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
    """Something to embed.

    Args:
        kind: a key of `KINDS`.
        pk: of the fact, moment or turn.
        user_id: primary key of its person; None for a shard's fact.
        said_at: when.
        text: what is embedded.
    """

    kind: str
    pk: int
    user_id: int | None
    said_at: datetime
    text: str


# Texts with their vectors; of one that the endpoint refuses by itself, in what words.
Vectors = list[tuple[Text, list[float] | str]]


@dataclass
class Answered:
    """What came of asking for the vectors of some texts.

    Args:
        made: of those that were answered.
        left: the other texts.
        error: why there are others; of several the one that says to wait longest.
    """

    made: Vectors = field(default_factory=list)
    left: list[Text] = field(default_factory=list)
    error: EngineError | None = None


def vectors_side_by_side(
    texts: Sequence[Text], embedder: "Embedder", progress: Callable[[int, int], object] = lambda done, total: None
) -> Answered:
    """Return the vectors of texts, `EMBEDDING__BATCH_SIZE` in a call, several calls at a time.

    Args:
        texts: in any number.
        embedder: is asked.
        progress: told the texts that are done, and all.
    """
    size = settings.EMBEDDING.batch_size
    batches = deque(texts[start : start + size] for start in range(0, len(texts), size))
    asking = _Asking(batches, embedder)
    asking.begin(min(embedder.calls_at_once, len(batches)))
    answered = Answered()
    for outcome in asking.outcomes():
        _take_in(answered, outcome, embedder)
        progress(len(answered.made), len(texts))
    answered.left += [text for batch in batches for text in batch]
    return answered


@dataclass(frozen=True)
class _Outcome:
    """What became of a batch: its vectors or an error, and the calls that it took."""

    batch: Sequence[Text]
    result: Vectors | Exception
    calls: list[CallRecord]


class _Asking:
    """Threads that ask for one batch after another, until none is left or a call has failed.

    They are daemons: a worker that has to end doesn't wait for the endpoint.
    """

    def __init__(self, batches: "deque[Sequence[Text]]", embedder: "Embedder") -> None:
        self._batches, self._embedder = batches, embedder
        self._outcomes: SimpleQueue[_Outcome | None] = SimpleQueue()
        self._has_failed = threading.Event()
        self._running = 0

    def begin(self, number: int) -> None:
        """Start so many threads."""
        self._running = number
        for _ in range(number):
            threading.Thread(target=self._work, name="embedding", daemon=True).start()

    def outcomes(self) -> Iterator[_Outcome]:
        """Yield what became of each batch that was asked for; no further one is, once this is left."""
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
            pass  # another thread took the last one
        finally:
            self._outcomes.put(None)

    def _asked(self, batch: Sequence[Text]) -> _Outcome:
        calls: list[CallRecord] = []
        try:
            return _Outcome(batch, vectors_of(batch, self._embedder.recording(calls.append)), calls)
        except Exception as error:
            self._has_failed.set()
            return _Outcome(batch, error, calls)


def _take_in(answered: Answered, outcome: _Outcome, embedder: "Embedder") -> None:
    """Put the calls for a batch on record, and take its vectors.

    Raises:
        Exception: what went wrong, where it was nothing about the endpoint.
    """
    for call in outcome.calls:
        # One that fails beside another tells nothing more of the endpoint.
        embedder.record(replace(call, is_beside=answered.error is not None and bool(call.error_kind)))
    if isinstance(outcome.result, list):
        answered.made += outcome.result
        return
    if not isinstance(outcome.result, EngineError):
        raise outcome.result
    answered.left += outcome.batch
    if answered.error is None or (outcome.result.retry_after or 0) > (answered.error.retry_after or 0):
        answered.error = outcome.result


def vectors_of(texts: Sequence[Text], embedder: "Embedder") -> Vectors:
    """Return the vectors of texts. A batch that is refused is halved, so that one bad text costs no good one.

    Raises:
        EngineError: when the endpoint gave no valid answer.
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
                raise  # then it is not about this one
            logger.warning("text refused by the embeddings endpoint", kind=texts[0].kind, pk=texts[0].pk)
            return [(texts[0], str(error))]
    middle = len(texts) // 2
    return vectors_of(texts[:middle], embedder) + vectors_of(texts[middle:], embedder)


def _takes_texts(embedder: "Embedder") -> bool:
    """Ask whether the endpoint takes a text that nobody could object to."""
    try:
        embedder.embed([HARMLESS])
    except EngineError as error:
        if error.kind == "rejected":
            return False
        raise
    return True
