"""The embedded embeddings server: texts in all scripts and lengths, a burst of long texts, memory and CPU time.

    python -m benchmarks.embeddings [--texts 10000] [--burst 5000]

Each text has random characters of one script, or words of several. During the burst, four clients send long texts while
queries are sent one at a time.
"""

import argparse
import json
import math
import random
import statistics
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from benchmarks.figures import print_markdown
from memoryproject.embeddings import BATCH_SIZE, read_address
from memoryproject.embeddings.served import MAX_CHARS
from tests.support.embeddings import serving

CLIENTS = 4  # that send documents
QUERIES = 60
IDLE_SECONDS = 10
LONG = "She said that she would move to Lisbon in spring, because her sister works there. " * 25
SCRIPTS = {
    "Latin": (0x61, 0x7A), "Latin with marks": (0xC0, 0x24F), "Greek": (0x391, 0x3C9), "Cyrillic": (0x410, 0x44F),
    "Hebrew": (0x5D0, 0x5EA), "Arabic": (0x621, 0x64A), "Devanagari": (0x905, 0x939), "Thai": (0xE01, 0xE2E),
    "Hangul": (0xAC00, 0xD7A3), "Kana": (0x3041, 0x30FA), "Han": (0x4E00, 0x9FA5), "Cuneiform": (0x12000, 0x12399),
    "emoji": (0x1F300, 0x1F6FF), "signs": (0x20, 0x40), "controls": (0x00, 0x1F), "any": (0x00, 0x10FFFF),
}  # fmt: skip
NOTE = "Texts in all scripts, one per request. On a busy machine, a text takes longer than its CPU time."
LENGTHS = (100, 500, MAX_CHARS, 100_000)


def main(arguments: list[str]) -> int:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--burst", type=int, default=5_000)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as process:
        server = Server(read_address(Path(folder)), psutil.Process(process.pid))
        server.ask(["Hello."], "query")
        idle = _idle(server)
        _burst(server, asked.burst)
        _fuzz(server, asked.texts)
        print_markdown(
            "The process", ["state", "memory (PSS, MB)", "threads"], [idle, server.state("after all texts")], ""
        )
    return 0


class Server:
    """A running server.

    Args:
        url: Its URL.
        process: Its process.
    """

    def __init__(self, url: str, process: psutil.Process) -> None:
        self._url, self._process = url, process

    def ask(self, texts: list[str], input_type: str) -> Any:
        """Request vectors. Retry while the queue is full."""
        body = json.dumps({"input": texts, "input_type": input_type}).encode()
        request = urllib.request.Request(f"{self._url}/embeddings", body, {"Content-Type": "application/json"})
        while True:
            try:
                with urllib.request.urlopen(request, timeout=600) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code != 503:
                    raise
                time.sleep(float(error.headers["Retry-After"]))

    @property
    def cpu(self) -> float:
        """The CPU seconds that it has used."""
        return time.clock_gettime(~self._process.pid << 3 | 2)  # the CPU clock of another process

    def state(self, name: str) -> list[str]:
        """Return a row about the current state of the process."""
        return [name, f"{self._process.memory_full_info().pss / 1e6:.0f}", str(self._process.num_threads())]


def _idle(server: Server) -> list[str]:
    began = server.cpu
    time.sleep(IDLE_SECONDS)
    used = (server.cpu - began) / IDLE_SECONDS * 1000
    return server.state(f"idle, {used:.1f} ms of CPU per second")


def _burst(server: Server, count: int) -> None:
    batches = [[LONG] * BATCH_SIZE for _ in range(math.ceil(count / BATCH_SIZE))]
    normal = _query_times(server)
    with ThreadPoolExecutor(CLIENTS) as pool:
        began, cpu = time.monotonic(), server.cpu
        sending = [pool.submit(server.ask, batch, "document") for batch in batches]
        time.sleep(2)
        busy = _query_times(server)
        used = (server.cpu - cpu) / (time.monotonic() - began)
        for one in sending:  # clients stop after their current request
            one.cancel()
    rows = [_row("alone", normal), _row("during a burst of long texts", busy)]
    note = (
        f"{CLIENTS} clients send up to {count:,} texts of {len(LONG):,} characters. Cores in use meanwhile: {used:.2f}."
    )
    print_markdown("Milliseconds of a query", ["state", "median", "p95", "most"], rows, note)


def _query_times(server: Server) -> list[float]:
    times = []
    for number in range(QUERIES):
        began = time.monotonic()
        server.ask([f"Where did she say that she was going on the {number}th?"], "query")
        times.append((time.monotonic() - began) * 1000)
        time.sleep(0.2)
    return times


def _row(name: str, times: list[float]) -> list[str]:
    p95 = sorted(times)[int(len(times) * 0.95)]
    return [name, *(f"{value:.0f}" for value in (statistics.median(times), p95, max(times)))]


def _fuzz(server: Server, count: int) -> None:
    """Send random texts. Print the CPU time and the duration of each."""
    chance = random.Random(0)
    cpu: dict[int, list[float]] = defaultdict(list)
    times: dict[int, list[float]] = defaultdict(list)
    for _ in range(count):
        [longest] = chance.choices((300, 2_000, 100_000), weights=(90, 9, 1))
        text = _text(chance, int(math.exp(chance.uniform(0, math.log(longest)))))
        began, cpu_began = time.monotonic(), server.cpu
        [entry] = server.ask([text], "document")["data"]
        length = next(most for most in LENGTHS if len(text) <= most)
        cpu[length].append((server.cpu - cpu_began) * 1000)
        times[length].append((time.monotonic() - began) * 1000)
        assert abs(math.hypot(*entry["embedding"]) - 1) < 0.01, text
    rows = [
        [f"up to {most:,}", f"{len(cpu[most]):,}", *_summary(cpu[most]), *_summary(times[most])]
        for most in LENGTHS
        if cpu[most]
    ]
    heads = ["characters", "texts", "CPU: median", "p99", "most", "time: median", "p99", "most"]
    print_markdown("Milliseconds per text", heads, rows, NOTE)


def _summary(values: list[float]) -> list[str]:
    p99 = sorted(values)[int(len(values) * 0.99)]
    return [f"{value:.0f}" for value in (statistics.median(values), p99, max(values))]


def _text(chance: random.Random, length: int) -> str:
    """Return a text of random characters of one script. Half of the texts contain spaces."""
    low, high = chance.choice(list(SCRIPTS.values()))
    space = chance.choice((0, 0.15))
    return "".join(" " if chance.random() < space else chr(chance.randint(low, high)) for _ in range(length))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
