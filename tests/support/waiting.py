"""Waits for events, however busy the machine is."""

import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress

TIMEOUT = 240  # seconds; a slow machine with parallel tests may need most of it


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + TIMEOUT
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def answers(url: str) -> bool:
    """Return whether a URL returns a success."""
    with suppress(OSError), urllib.request.urlopen(url, timeout=30) as page:
        return bool(page.status == 200)
    return False
