"""Choosing the instant of a kill by what a process waits in: each such place gets its turn."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

LOOK_SECONDS = 0.6  # in which it is seen where processes wait
CATCH_SECONDS = 1.0  # in which one is caught there
RUNS = "running"

Candidates = Callable[[], Sequence[psutil.Process]]


def place(pid: int) -> str:
    """Return what a process waits in, as the kernel tells; where it doesn't tell, its state."""
    for name in ("wchan", "syscall"):
        try:
            told = Path(f"/proc/{pid}/{name}").read_text().split(" ", 1)[0].strip()
        except OSError:
            continue
        if told not in ("", "0"):
            return told if name == "wchan" else f"system call {told}" if told.isdigit() else RUNS
    return RUNS


class Picker:
    """Picks one of some processes, at an instant.

    Args:
        chance: where chance decides.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.places: Counter[str] = Counter()  # in which one was picked

    def at_random(self, candidates: Candidates) -> psutil.Process | None:
        """Return one at any time; None if there is none."""
        time.sleep(self._chance.uniform(0, LOOK_SECONDS))
        found = candidates()
        return self._picked(self._chance.choice(found)) if found else None

    def by_place(self, candidates: Candidates) -> psutil.Process | None:
        """Return one as soon as it waits where the fewest were picked so far; None if there is none."""
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
    """Yield for some seconds, a thousand times a second at most."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        time.sleep(0.001)
