"""Observes a site from outside during a fault: how long other clients wait, and where the fault is reported."""

import http.client
import json
import threading
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Self

from drill.site import ALARMS, Site

PROBE_INTERVAL = 1.0  # seconds between two requests of the prober
CHECK_INTERVAL = 0.3  # seconds between two checks of /readyz
# Contents of the dashboard: events about the state of the site, and failed calls.
SHOWN = """
SELECT DISTINCT type FROM sessions_app_event WHERE id > %s
AND type ~ 'restarted|state|degraded|down|circuit|provider|failing|quarantine|replay'
UNION SELECT 'failed calls' FROM moments_app_enginecall WHERE id > %s AND NOT ok
"""


class _Background(ABC):
    """A thread that repeats a step while its block runs."""

    pause: float

    def __init__(self, site: Site) -> None:
        self._site = site
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(35)

    def _work(self) -> None:
        while True:
            began = time.monotonic()
            self._step()
            if self._ending.wait(max(self.pause - (time.monotonic() - began), 0)):
                return

    @abstractmethod
    def _step(self) -> None:
        """Do the step once."""


class Prober(_Background):
    """Reads a person's session once per second.

    Args:
        site: The site.
        person: The person. The session has the same name, and should exist.
    """

    pause = PROBE_INTERVAL

    def __init__(self, site: Site, person: str) -> None:
        super().__init__(site)
        self._path = f"/api/v1/sessions/{person}/messages?view=live&user_id={person}"
        self.seconds: list[float] = []
        self.statuses: list[int] = []

    def _step(self) -> None:
        began = time.monotonic()
        self.statuses.append(self._site.status("GET", self._path))
        self.seconds.append(time.monotonic() - began)

    def refused(self) -> str:
        """Return a remark about failed requests, or a blank string."""
        bad = [status for status in self.statuses if status != 200]
        kinds = ", ".join(str(status or "no answer") for status in sorted(set(bad)))
        return f"{len(bad)} of {len(self.statuses)} probes answered {kinds}" if bad else ""


class Watch(_Background):
    """Records where problems are reported while the block runs."""

    pause = CHECK_INTERVAL

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._readiness: set[str] = set()
        self._log_size = site.log_size
        self._events = site.number("SELECT COALESCE(max(id), 0) FROM sessions_app_event")
        self._calls = site.number("SELECT COALESCE(max(id), 0) FROM moments_app_enginecall")

    def _step(self) -> None:
        with suppress(OSError, http.client.HTTPException, ValueError):
            _, body = self._site.request("GET", "/readyz", seconds=5)
            checks = json.loads(body).get("checks", {})
            self._readiness.update(name for name, state in checks.items() if state != "ok")

    def told(self) -> list[str]:
        """Return the places, without duplicates."""
        places = [f"readyz ({', '.join(sorted(self._readiness))})"] if self._readiness else []
        log = self._site.log_since(self._log_size)
        if any(alarm in line for line in log.splitlines() for alarm in ALARMS):
            places.append("log")
        shown = [kind for (kind,) in self._site.rows(SHOWN, self._events, self._calls)]
        return places + [f"dashboard ({', '.join(shown)})"] * bool(shown)
