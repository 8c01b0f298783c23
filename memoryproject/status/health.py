"""The health endpoints: whether the process is alive, and whether it is ready for work."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from django.db import connection
from django.http import HttpRequest, JsonResponse

from memoryproject.status.checks import READY, Facts, Finding, findings, is_down, with_request
from sessions_app.database.database_roles import ADMIN, taking

NAMES = "database", "migrations", "queue"
OK, DEGRADED, UNAVAILABLE = "ok", "degraded", "unavailable"


class Readiness:
    """The response of `/readyz`, computed in its own thread, so requests and the checks never delay each other.

    A hanging database blocks that thread. Clients still get a response after `PATIENCE` seconds.
    """

    PATIENCE = 3.0

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="readiness")
        self._look: asyncio.Future[list[Finding]] | None = None

    async def look(self) -> tuple[int, dict[str, object]]:
        """Return the status and the body of the response."""
        if self._look is None or self._look.done():
            self._look = asyncio.get_running_loop().run_in_executor(self._executor, _checked)
        try:
            found = await asyncio.wait_for(asyncio.shield(self._look), self.PATIENCE)
        except TimeoutError:
            checks = {"database": f"No response within {self.PATIENCE:.0f} s."}
            return 503, {"status": UNAVAILABLE, "checks": checks}
        return _response(found)


def _checked() -> list[Finding]:
    try:
        with taking(ADMIN):  # the queue has jobs of many people
            return readiness()
    finally:
        connection.close()


def _response(found: list[Finding]) -> tuple[int, dict[str, object]]:
    """Return 503 only if requests can't be served. If background work is late, return 200 with the reason."""
    checks = dict.fromkeys(NAMES, OK) | {finding.name: finding.sentence for finding in found}
    if is_down(found):
        return 503, {"status": UNAVAILABLE, "checks": checks}
    return 200, {"status": DEGRADED if found else OK, "checks": checks}


def healthz(request: HttpRequest) -> JsonResponse:
    """Return 200 while the process is alive."""
    return JsonResponse({"status": OK})


def readyz(request: HttpRequest) -> JsonResponse:
    """Return whether requests are served, and whether background work is on time."""
    status, body = _response(readiness())
    return JsonResponse(body, status=status)


def readiness() -> list[Finding]:
    """Run the checks and a request's transaction."""
    return with_request(list(findings(READY, Facts())))
