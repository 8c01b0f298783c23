"""Benchmark of the chat endpoint: the time that it adds to a model's answer, and the cost of open streams."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from benchmarks.clients import Clients, FirstByte, Stream, timed
from benchmarks.figures import Figure
from benchmarks.site import Site
from tests.support.openai_server import Handler, OpenAIServer, streamed

TITLE = "First byte of a streamed answer"
NOTE = (
    "The time from a message to the first byte of the answer, with a model that starts to answer at once. It includes "
    "authentication, the context (static layers are cached), a search, and storing the message. Raw: the same "
    "message, sent directly to the model. As people talk: the whole answer takes two seconds, and each person writes "
    "again within four seconds. Without a pause: as many calls as possible. Idle: open streams that wait for the "
    "model. Their rate column shows by how much the memory of all web processes grew, and how many threads they have."
)
STREAMS = (1, 16)  # concurrent streams
PAUSES = 20  # pauses of a tenth of a second in a realistic answer
PAUSE = 4.0  # maximum seconds until a person asks again
SECONDS = 10.0
ROUNDS = 3
IDLE = 200


def figures(site: Site) -> list[Figure]:
    site.model.always(streamed(*["Noted. "] * PAUSES, pause=0.1))
    spoken = _first_byte(site, STREAMS[-1], "as people talk", pause=PAUSE)
    site.model.always(streamed("Noted", "."))
    hurried = [_first_byte(site, count, "without a pause") for count in STREAMS]
    return [spoken, *hurried, _idle(site)]


def _first_byte(site: Site, count: int, how: str, pause: float = 0) -> Figure:
    ours, raw = [], []
    ours_by, raw_by = FirstByte(site.port, site.key, pause), FirstByte(site.model.port, "none", pause)
    with Clients(ours_by, count) as through, Clients(raw_by, count) as straight:
        for _ in range(ROUNDS):
            raw.append(straight.run(SECONDS))
            ours.append(through.run(SECONDS))
    name = "1 stream" if count == 1 else f"{count} streams at once"
    return Figure.of(f"{name}, {how}", ours, raw, wanted="≤ 40 ms more than raw")


def _idle(site: Site) -> Figure:
    processes = list(_web_processes(site.port))
    before = _memory(processes)
    with waiting_streams(site.model) as open_one:
        ours = [timed(lambda: open_one(site.port, site.key)) for _ in range(IDLE)]
        megabytes = (_memory(processes) - before) / 1e6
        threads = sum(process.num_threads() for process in processes)
        raw = [timed(lambda: open_one(site.model.port, "none")) for _ in range(IDLE)]
    rate = f"{megabytes:.0f} MB, {threads} threads"
    return Figure.of(f"{IDLE} idle streams", [ours], [raw], rate=rate, wanted="bounded memory")


@contextmanager
def waiting_streams(model: OpenAIServer) -> Iterator[Callable[[int, str], None]]:
    """Yield a function that opens a stream, by port and key. The streams wait for the model until the block ends."""
    go_on = threading.Event()
    model.always(streamed("Wait", end=lambda *asked: _end(go_on, *asked)))
    streams: list[Stream] = []

    def open_one(port: int, key: str) -> None:
        streams.append(Stream(port, key, f"idle-{len(streams)}", "Hello"))

    try:
        yield open_one
    finally:
        go_on.set()
        for stream in streams:
            stream.close()


def _end(go_on: threading.Event, handler: Handler, body: dict[str, Any]) -> None:
    go_on.wait()
    handler.event("[DONE]")
    handler.chunk(b"")


def _web_processes(port: int) -> Iterator[psutil.Process]:
    for process in psutil.Process().children(recursive=True):
        if any(f":{port}" in argument for argument in process.cmdline()):
            yield process


def _memory(processes: list[psutil.Process]) -> int:
    return sum(process.memory_info().rss for process in processes)
