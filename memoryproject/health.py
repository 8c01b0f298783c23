"""Health checks: whether the process is alive, and whether it is ready for work."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from django.conf import settings
from django.db import connection
from django.http import HttpRequest, JsonResponse

from memoryproject.verification import a_request, misfit
from moments_app.models import Job
from sessions_app.database_roles import ADMIN, taking

OK = "ok"

_fits = False


class Readiness:
    """What `checks` say, asked in a thread of its own so that no request waits for it nor it for one.

    A database that doesn't answer keeps the thread; whoever asks meanwhile is told that after `PATIENCE` seconds.
    """

    PATIENCE = 3.0

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="readiness")
        self._look: asyncio.Future[dict[str, str]] | None = None

    async def look(self) -> tuple[int, dict[str, object]]:
        """Return the status and the body of the answer."""
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
    ready = all(state == OK for state in states.values())
    return 200 if ready else 503, {"status": OK if ready else "unavailable", "checks": states}


def healthz(request: HttpRequest) -> JsonResponse:
    """Answer as long as the process is alive."""
    return JsonResponse({"status": OK})


def readyz(request: HttpRequest) -> JsonResponse:
    """Database, migrations and queue are as they should be; 503 says which is not."""
    status, told = _told(readiness())
    return JsonResponse(told, status=status)


def readiness() -> dict[str, str]:
    """Check the same as `checks`, and whether a request's own transaction works."""
    return with_request(checks())


def with_request(states: dict[str, str]) -> dict[str, str]:
    """Add to what `checks` said whether a request's own transaction works."""
    if states["database"] == states["migrations"] == OK and (wrong := a_request()):
        states["database"] = wrong[0]
    return states


def checks() -> dict[str, str]:
    """Check everything that the site needs for its work. Each check is `ok` or says what is wrong."""
    states = {"database": OK, "migrations": OK, "queue": OK}
    try:
        if wrong := _misfit():
            states["migrations"] = wrong
        else:
            age = Job.objects.oldest_wait()
            if age > settings.JOBS.queue_age_alarm_seconds:
                states["queue"] = f"Due work has waited for {age:.0f} s; is a worker running?"
    except Exception as error:
        # A probe always answers. The class of an error is safe to show; its text may name hosts.
        states["database"] = f"No answer: {type(error).__name__}"
    return states


def _misfit() -> str:
    """Return why the tables don't fit this code, or blank.

    That they fit is remembered for as long as the process runs: when a release is rolled out, the next one migrates
    while the processes of this one still serve.
    """
    global _fits
    with taking(None):  # before a first `migrate` there is no other role than the login's
        wrong = "" if _fits else misfit()
    _fits = not wrong
    return wrong
