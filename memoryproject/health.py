"""Health checks: whether the process is alive, and whether it is ready for work."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from django.conf import settings
from django.db import connection
from django.http import HttpRequest, JsonResponse

from memoryproject.verification import a_request, misfit
from moments_app.models import Job
from sessions_app.database_roles import ADMIN, taking

OK, DEGRADED, UNAVAILABLE = "ok", "degraded", "unavailable"
SERVING = ("database", "migrations")  # checks without which no request can be answered

_fits = False


class Readiness:
    """The answer of `/readyz`, computed in a thread of its own: requests and the check never wait for each other.

    A database that hangs blocks that thread. Callers get an answer after `PATIENCE` seconds all the same.
    """

    PATIENCE = 3.0

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="readiness")
        self._look: asyncio.Future[dict[str, str]] | None = None

    async def look(self) -> tuple[int, dict[str, object]]:
        """Return the status and the body of the response."""
        if self._look is None or self._look.done():
            self._look = asyncio.get_running_loop().run_in_executor(self._executor, _checked)
        try:
            states = await asyncio.wait_for(asyncio.shield(self._look), self.PATIENCE)
        except TimeoutError:
            states = {"database": f"No answer within {self.PATIENCE:.0f} s."}
        return _told(states)


def _checked() -> dict[str, str]:
    try:
        with taking(ADMIN):  # of many people: whether work waits
            return readiness()
    finally:
        connection.close()


def _told(states: dict[str, str]) -> tuple[int, dict[str, object]]:
    """Return 503 only when requests can't be served. Late background work degrades the site: 200, with the reason."""
    wrong = {name for name, state in states.items() if state != OK}
    status = UNAVAILABLE if wrong & set(SERVING) else DEGRADED if wrong else OK
    return 503 if status == UNAVAILABLE else 200, {"status": status, "checks": states}


def healthz(request: HttpRequest) -> JsonResponse:
    """Answer 200 while the process is alive."""
    return JsonResponse({"status": OK})


def readyz(request: HttpRequest) -> JsonResponse:
    """Tell whether requests are served, and whether background work is on time."""
    status, told = _told(readiness())
    return JsonResponse(told, status=status)


def readiness() -> dict[str, str]:
    """Run all checks, and the transaction of a request."""
    return with_request(checks())


def with_request(states: dict[str, str]) -> dict[str, str]:
    """Run the transaction of a request if the checks of the database passed, and add its result to them."""
    if all(states[name] == OK for name in SERVING) and (wrong := a_request()):
        states["database"] = wrong[0]
    return states


def checks() -> dict[str, str]:
    """Check the database, its migrations and the queue. Each result is `ok` or says what is wrong."""
    states = {"database": OK, "migrations": OK, "queue": OK}
    try:
        states["migrations"] = _misfit() or OK
    except Exception as error:
        states["database"] = _unanswered(error)
    if all(states[name] == OK for name in SERVING):
        states["queue"] = _late()
    return states


def _late() -> str:
    """Return how long due work has waited if that is too long, else `ok`."""
    try:
        age = Job.objects.oldest_wait()
    except Exception as error:
        return _unanswered(error)
    is_late = age > settings.JOBS.queue_age_alarm_seconds
    return f"Due work has waited for {age:.0f} s; is a worker running?" if is_late else OK


def _unanswered(error: Exception) -> str:
    """Return the class of an error: a probe always answers, and an error's text may name hosts."""
    return f"No answer: {type(error).__name__}"


def _misfit() -> str:
    """Return why the tables don't fit this code; blank when they do.

    A process that found them fitting once doesn't ask again: during a rollout the next release migrates while the
    processes of this one still serve.
    """
    global _fits
    with taking(None):  # before a first `migrate` there is no other role than the login's
        wrong = "" if _fits else misfit()
    _fits = not wrong
    return wrong
