"""The order of computation, and rejected requests."""

import asyncio
import threading

import numpy
import pytest

from memoryproject.embeddings.queue import MAX_DOCUMENTS, MAX_QUERIES, Queue, QueueFull
from memoryproject.embeddings.served import Embedding, Model


class Slow(Model):
    """A model that computes a document only when the test releases it. Records the order of the texts."""

    name, dimensions = "slow", 1

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.let = threading.Semaphore(0)

    def embed(self, text: str, *, is_query: bool) -> Embedding:
        self.begun.append(text)
        if not is_query:
            self.let.acquire(timeout=5)  # its thread outlives a test that doesn't release it
        if text == "broken":
            raise ValueError(text)
        return Embedding(numpy.ones(1, dtype=numpy.float32), 1)


async def until_begun(model: Slow, text: str) -> None:
    while text not in model.begun:
        await asyncio.sleep(0.001)


def test_a_query_is_computed_before_waiting_documents() -> None:
    async def scenario() -> None:
        model = Slow()
        queue = Queue(model)
        documents = queue.add(["one", "two"], is_query=False)
        await until_begun(model, "one")
        assert len(await queue.add(["question"], is_query=True)) == 1
        model.let.release(2)
        assert len(await documents) == 2
        assert model.begun == ["one", "question", "two"]

    asyncio.run(scenario())


def test_texts_of_a_canceled_request_are_not_computed() -> None:
    async def scenario() -> None:
        model = Slow()
        queue = Queue(model)
        gone = queue.add(["one", "two", "three"], is_query=False)
        await until_begun(model, "one")
        after = queue.add(["last"], is_query=False)
        gone.cancel()
        model.let.release(2)
        await after
        assert model.begun == ["one", "last"]

    asyncio.run(scenario())


def test_a_text_that_fails_only_fails_its_own_request() -> None:
    async def scenario() -> None:
        model = Slow()
        queue = Queue(model)
        model.let.release(2)
        broken, other = queue.add(["broken", "x"], is_query=False), queue.add(["fine"], is_query=False)
        with pytest.raises(ValueError, match="broken"):
            await broken
        assert len(await other) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(("is_query", "most"), [(True, MAX_QUERIES), (False, MAX_DOCUMENTS)])
def test_a_full_queue_reports_when_to_retry(is_query: bool, most: int) -> None:
    async def scenario() -> None:
        queue = Queue(Slow())
        queue.add(["x"] * most, is_query=is_query)
        with pytest.raises(QueueFull) as raised:
            queue.add(["x"], is_query=is_query)
        assert raised.value.seconds >= 1

    asyncio.run(scenario())


def test_documents_are_rejected_if_they_would_wait_too_long() -> None:
    async def scenario() -> None:
        queue = Queue(Slow())
        queue.add(["x" * 1_000] * 500, is_query=False)  # about 50 seconds of work
        with pytest.raises(QueueFull) as raised:
            queue.add(["x"], is_query=False)
        assert 30 < raised.value.seconds < 100

    asyncio.run(scenario())
