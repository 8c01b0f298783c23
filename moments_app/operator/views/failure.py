"""The page of a failure with its incidents, calls and unfinished jobs; and retrying the jobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import messages
from django.db.models import Count, F, Sum
from django.template.defaultfilters import pluralize

from moments_app.jobs.steer import AT_ONCE, retry_all, try_one
from moments_app.models import Circuit, EngineCall, FailureGroup, Job
from moments_app.models.failure import STRIP_HOURS
from moments_app.operator.rights import PREVIEW_CONTEXT, SEE_MEMORY
from moments_app.reports.incidents import Incident, incidents_of
from sessions_app.admin.links import change_url
from sessions_app.admin.views.base import FormPage, RowAction
from sessions_app.models import Session

SHOWN = 20  # maximum jobs, and maximum calls
SHARED = 5  # people, and prompt versions, with the most failures
BAR = 480  # width of the strip, in its own units
CHANGE_CIRCUIT = "moments_app.change_circuit"
RETRY_WARNING = f"Up to {AT_ONCE} failed jobs of this incident are queued again, and waiting jobs become due now."
# For operators who may change circuits.
PROBE_WARNING = " If the circuit of their engine is open, one job tries the engine."
# For each process: words for the turns not yet remembered, and the counter of a session's remembered turns.
NOT_REMEMBERED = {
    "build_moments": ("turns without a moment", "built_message_count"),
    "form_memories": ("turns not searched for facts", "formed_message_count"),
}


@dataclass(frozen=True)
class Hour:
    """An hour of the strip with its bar: the position in the strip's units, and the height in percent."""

    at: datetime
    count: int
    x: float
    height: float

    @property
    def top(self) -> float:
        """The top of its bar."""
        return 100 - self.height


@dataclass(frozen=True)
class Shown:
    """An incident on the page of one of its failures."""

    incident: Incident
    failure: FailureGroup

    @property
    def others(self) -> list[FailureGroup]:
        """The incident's other failures."""
        return [each for each in self.incident.failures if each != self.failure]

    @property
    def retry_button(self) -> str:
        """The label of the button that retries its jobs; blank if it has none."""
        jobs = self.incident.by_failure.total()
        return f"Retry {jobs:,} job{pluralize(jobs)}" if jobs else ""


def strip_of(hours: Sequence[tuple[datetime, int]]) -> list[Hour]:
    """Return one bar for each hour."""
    most, width = max((count for _, count in hours), default=0) or 1, BAR / STRIP_HOURS
    return [Hour(at, count, number * width, 100 * count / most) for number, (at, count) in enumerate(hours)]


class FailureForm(FormPage[FailureGroup]):
    """A failure: what it is, whom it affects, and what to do."""

    before = "operator/failures/failure.html"

    def context(self) -> dict[str, Any]:
        failure = self.row
        stalled = self.seen(Job.objects.stalled().filter(failure=failure))
        circuits = list(self.seen(Circuit.objects.open()))
        strip = strip_of(failure.by_hour())
        return {
            "failure": failure,
            "incidents": [Shown(each, failure) for each in incidents_of(failure, circuits)],
            "may_change": self.admin.has_steer_permission(self.request),
            "may_read": self.request.user.has_perms((PREVIEW_CONTEXT, *SEE_MEMORY)),
            "bar": BAR,
            "bar_width": BAR / STRIP_HOURS - 1,
            "strip": strip,
            "hours": [hour for hour in reversed(strip) if hour.count],
            "retry_warning": RETRY_WARNING + (PROBE_WARNING if self.request.user.has_perm(CHANGE_CIRCUIT) else ""),
            "jobs": stalled.select_related("user", "session__user", "stream").order_by("-id")[:SHOWN],
            "people": self._people(stalled),
            "not_remembered": self._not_remembered(stalled),
            "calls": self._calls().select_related("exchange", "prompt_version__resource").order_by("-id")[:SHOWN],
            "versions": self._versions(),
        }

    def _calls(self) -> Any:
        return self.seen(EngineCall.objects.filter(failure=self.row))

    def _people(self, stalled: Any) -> dict[str, Any]:
        of_people = stalled.filter(user__isnull=False).values("user", "user__user_id").order_by()
        most = of_people.annotate(jobs=Count("pk")).order_by("-jobs", "user")[: SHARED + 1]
        return {"most": list(most)[:SHARED], "are_more": len(most) > SHARED}

    def _versions(self) -> Any:
        calls = self._calls().exclude(prompt_version=None).order_by()
        named = calls.values("prompt_version__number", "prompt_version__resource__name")
        return named.annotate(calls=Count("pk")).order_by("-calls")[:SHARED]

    def _not_remembered(self, stalled: Any) -> str:
        """Return a sentence about turns that aren't remembered because of the failure; blank if they aren't counted."""
        if self.row.process not in NOT_REMEMBERED:
            return ""
        words, done = NOT_REMEMBERED[self.row.process]
        rows = stalled.filter(session__isnull=False).order_by().values("session").distinct()
        sessions = self.seen(Session.objects.filter(pk__in=rows))
        found = sessions.aggregate(turns=Sum(F("message_count") - F(done)), sessions=Count("pk"))
        return f"{found['turns'] or 0:,} {words} in {found['sessions']:,} sessions" if found["sessions"] else ""


class SteerFailure(RowAction[FailureGroup]):
    """A change of a failure's incident, for operators who may change jobs."""

    permission = "steer"

    def change(self, failure: FailureGroup) -> str:
        key = self.request.POST.get("incident")
        shown = incidents_of(failure, list(self.seen(Circuit.objects.open())))  # circuits are part of the key
        incident = next((each for each in shown if each.key == key), None)
        if incident is None:
            messages.error(self.request, "This incident is over, so nothing was changed.")
            return change_url(failure)
        return self.steer(failure, incident)

    def steer(self, failure: FailureGroup, incident: Incident) -> str:
        """Change an incident, and return the URL to redirect to."""
        raise NotImplementedError


class TryFailure(SteerFailure):
    """Run one of the jobs again, to test whether the cause is gone."""

    route, name = "<int:pk>/try/", "try"

    def steer(self, failure: FailureGroup, incident: Incident) -> str:
        job = try_one(incident.stalled())
        if job is None:
            messages.error(
                self.request,
                "None of these jobs can be retried now. They are running already, or they are retried automatically.",
            )
            return change_url(failure)
        self.log(failure, f"Tried one: {job}.", f"{job} runs now. Reload its page to see how it ends.")
        return change_url(job)


class RetryFailure(SteerFailure):
    """Run all jobs of the incident again."""

    route, name = "<int:pk>/retry/", "retry"

    def steer(self, failure: FailureGroup, incident: Incident) -> str:
        circuits = incident.circuits if self.request.user.has_perm(CHANGE_CIRCUIT) else ()
        retried = retry_all(incident.stalled(), circuits, actor=self.actor)
        self.log(failure, f"Retried: {retried}.", f"{incident.cause}: {retried}.")
        return change_url(failure)


class MuteFailure(SteerFailure):
    """Mute the incident: list it after all others."""

    route, name = "<int:pk>/mute/", "mute"

    def steer(self, failure: FailureGroup, incident: Incident) -> str:
        for each in incident.failures:
            each.mute(incident.key, actor=self.actor)
        told = f"Muted: {incident.cause}. The dashboard lists it last until its jobs are done."
        self.log(failure, f"Muted: {incident.cause}.", told)
        return change_url(failure)


class UnmuteFailure(SteerFailure):
    """Show the incident as usual again."""

    route, name = "<int:pk>/unmute/", "unmute"

    def steer(self, failure: FailureGroup, incident: Incident) -> str:
        for each in incident.failures:
            each.unmute(incident.key)
        self.log(failure, f"Unmuted: {incident.cause}.", f"No longer muted: {incident.cause}.")
        return change_url(failure)
