"""The throw-away installation under attack."""

from collections.abc import Mapping
from typing import Any

from drill.poison.course import Watch
from drill.poison.doors import REQUEST_TIMEOUT
from drill.recovery import OPEN, now
from drill.site import Site, wait_for

REST_SECONDS = 1_800
QUIET = "UPDATE sessions_app_session SET last_arrived_at = last_arrived_at - interval '1 day'"


class AttackedSite:
    """A site with an observer of its model calls.

    Args:
        site: The running site.
        watch: Observes the calls of its models.
    """

    def __init__(self, site: Site, watch: Watch) -> None:
        self._site, self._watch = site, watch
        self.manage, self.sent_upstream = site.manage, watch.last_chat

    def request(
        self, method: str, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Make one request with a service key."""
        return self._site.request(method, path, body, headers=headers, seconds=REQUEST_TIMEOUT)

    def rest(self) -> None:
        """Wait until all due jobs are done."""
        wait_for("all work to be done", lambda: not self._site.number(OPEN, now()), REST_SECONDS, pause=0.3)

    def have_quiet(self) -> None:
        """Make all sessions look idle, so that they are settled."""
        with self._site.connect() as connection:
            connection.execute(QUIET)
        self._site.manage("run_schedule", "compact_sessions")
