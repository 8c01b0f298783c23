"""Waiting for what is to happen, however busy the machine is."""

import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress

TIMEOUT = 240  # seconds; a slow machine with other tests beside this may need most of it


def wait_until(holds: Callable[[], bool]) -> None:
    """Return when something is so."""
    deadline = time.monotonic() + TIMEOUT
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def answers(url: str) -> bool:
    """Tell whether an address answers with success."""
    with suppress(OSError), urllib.request.urlopen(url, timeout=30) as page:
        return bool(page.status == 200)
    return False
