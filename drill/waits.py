"""Chooses the moment of a kill by the process's wait channel, so that each channel gets its turn."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

LOOK_SECONDS = 0.6  # how long to observe where processes wait
CATCH_SECONDS = 1.0  # how long to wait for one at the chosen place
RUNS = "running"

Candidates = Callable[[], Sequence[psutil.Process]]


def place(pid: int) -> str:
    """Return a process's wait channel as reported by the kernel, or else its state."""
    for name in ("wchan", "syscall"):
        try:
            told = Path(f"/proc/{pid}/{name}").read_text().split(" ", 1)[0].strip()
        except OSError:
            continue
        if told not in ("", "0"):
            return told if name == "wchan" else f"system call {told}" if told.isdigit() else RUNS
    return RUNS


class Picker:
    """Picks a process and a moment.

    Args:
        chance: The source of randomness.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.places: Counter[str] = Counter()  # number of picks by wait channel

    def at_random(self, candidates: Candidates) -> psutil.Process | None:
        """Return a process at a random time, or None."""
        time.sleep(self._chance.uniform(0, LOOK_SECONDS))
        found = candidates()
        return self._picked(self._chance.choice(found)) if found else None

    def by_place(self, candidates: Candidates) -> psutil.Process | None:
        """Return a process as soon as it waits in the channel with the fewest picks so far, or None."""
        seen = {place(process.pid) for _ in _looks(LOOK_SECONDS) for process in candidates()}
        if not seen:
            return None
        rarest = min(sorted(seen), key=lambda one: self.places[one])
        for _ in _looks(CATCH_SECONDS):
            for process in candidates():
                if place(process.pid) == rarest:
                    return self._picked(process)
        return self.at_random(candidates)

    def _picked(self, process: psutil.Process) -> psutil.Process:
        self.places[place(process.pid)] += 1
        return process


def _looks(seconds: float) -> Iterator[None]:
    """Yield for some seconds, at most a thousand times per second."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        time.sleep(0.001)
