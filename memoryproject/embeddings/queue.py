"""Choose the next text to embed: queries before documents. Skip the texts of disconnected clients.

One thread embeds documents and another one embeds queries, so a query doesn't wait for the end of a long document. No
document is started while a query waits or is being embedded. So both threads work in parallel only until the current
document is done.
"""

import asyncio
import math
import os
import sys
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

from memoryproject.embeddings.served import MAX_CHARS, Embedding, Model

MAX_QUERIES = 64  # maximum number of waiting queries; their clients time out after two seconds
MAX_DOCUMENTS = 4_096  # maximum number of waiting documents
MAX_WAIT = 20.0  # maximum estimated wait of new documents, in seconds
SECONDS_PER_CHAR = 0.0001  # estimate before the first texts are measured
RECENT = 0.05  # weight of the latest text in the moving average of seconds per character
NICENESS = 5  # nice value of the thread that embeds documents


class QueueFull(Exception):
    def __init__(self, seconds: float) -> None:
        super().__init__("Too many texts are waiting. Try again later.")
        self.seconds = max(1, math.ceil(seconds))


class QueuedRequest:
    """The texts of a request, at least one. They are canceled when the client disconnects."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.waiting = deque(texts)
        self.chars = sum(min(len(text), MAX_CHARS) for text in texts)
        self.done: asyncio.Future[list[Embedding]] = asyncio.get_running_loop().create_future()
        self._made: list[Embedding] = []

    def add(self, made: Embedding) -> None:
        self._made.append(made)
        if not self.waiting and not self.done.done():
            self.done.set_result(self._made)


class SerialQueue:
    """Requests that one thread processes in order, text by text. Requests in the queue `yields_to` have priority."""

    def __init__(self, model: Model, *, is_query: bool, yields_to: "SerialQueue | None" = None) -> None:
        self._model, self._is_query, self._yields_to = model, is_query, yields_to
        self._thread = ThreadPoolExecutor(1, initializer=None if is_query else _lower_priority)
        self._requests: deque[QueuedRequest] = deque()
        self._work = asyncio.Event()  # set while requests are waiting
        self._idle = asyncio.Event()
        self._idle.set()
        self.seconds_per_char = SECONDS_PER_CHAR

    @property
    def waiting(self) -> int:
        return sum(len(request.waiting) for request in self._living())

    @property
    def seconds(self) -> float:
        """The estimated time that the waiting texts will take."""
        return sum(request.chars for request in self._living()) * self.seconds_per_char

    def _living(self) -> list[QueuedRequest]:
        return [request for request in self._requests if not request.done.done()]

    def add(self, request: QueuedRequest) -> None:
        self._requests.append(request)
        self._work.set()
        self._idle.clear()

    async def run(self) -> None:
        while True:
            await self._work.wait()
            if self._yields_to:
                await self._yields_to._idle.wait()
            if request := self._next():
                await self._compute(request)

    def _next(self) -> QueuedRequest | None:
        while self._requests:
            request = self._requests[0]
            if request.waiting and not request.done.done():
                return request
            self._requests.popleft()
        self._work.clear()
        self._idle.set()
        return None

    async def _compute(self, request: QueuedRequest) -> None:
        text = request.waiting.popleft()
        chars, began = min(len(text), MAX_CHARS), monotonic()
        loop = asyncio.get_running_loop()
        try:
            made = await loop.run_in_executor(self._thread, lambda: self._model.embed(text, is_query=self._is_query))
        except Exception as error:
            if not request.done.done():
                request.done.set_exception(error)
            return
        request.chars -= chars
        self.seconds_per_char += RECENT * ((monotonic() - began) / max(chars, 20) - self.seconds_per_char)
        request.add(made)


class Queue:
    def __init__(self, model: Model) -> None:
        self._queries = SerialQueue(model, is_query=True)
        self._documents = SerialQueue(model, is_query=False, yields_to=self._queries)
        self._tasks = [asyncio.create_task(queue.run()) for queue in (self._queries, self._documents)]

    def add(self, texts: Sequence[str], *, is_query: bool) -> "asyncio.Future[list[Embedding]]":
        """Queue texts. Raise `QueueFull` if too many texts are waiting."""
        queue = self._queries if is_query else self._documents
        limit = MAX_QUERIES if is_query else MAX_DOCUMENTS
        if queue.waiting and (queue.waiting + len(texts) > limit or queue.seconds > MAX_WAIT):
            raise QueueFull(queue.seconds)
        request = QueuedRequest(texts)
        queue.add(request)
        return request.done


def _lower_priority() -> None:
    """Lower the priority of the calling thread, if the platform has priorities for threads."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
