"""The page of a failure: its cause, what those whom it hit share, what waits because of it; and trying all anew."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, F, Sum
from django.template.defaultfilters import pluralize

from moments_app.jobs.retry_all import AT_ONCE, retry_all
from moments_app.models import Circuit, EngineCall, FailureGroup, Job
from moments_app.models.failure import STRIP_HOURS
from moments_app.operator.rights import PREVIEW_CONTEXT, SEE_MEMORY
from sessions_app.admin.links import change_url
from sessions_app.admin.views.base import FormPage, RowAction
from sessions_app.models import Session

SHOWN = 20  # jobs, and calls
SHARED = 5  # people, and versions of prompts, that it hit most
BAR = 480  # width of the strip, in its own units
# By process, the counters of a session whose difference is what isn't remembered yet.
NOT_REMEMBERED = {
    "build_moments": ("turns without a moment", "built_message_count"),
    "form_memories": ("turns not searched for facts", "formed_message_count"),
}


@dataclass(frozen=True)
class Hour:
    """An hour of the strip: where its bar stands, and how high it is, in per cent."""

    at: datetime
    count: int
    x: float
    height: float

    @property
    def top(self) -> float:
        """Where its bar begins."""
        return 100 - self.height


def strip_of(hours: Sequence[tuple[datetime, int]]) -> list[Hour]:
    """Return the bars of the hours."""
    most, width = max((count for _, count in hours), default=0) or 1, BAR / STRIP_HOURS
    return [Hour(at, count, number * width, 100 * count / most) for number, (at, count) in enumerate(hours)]


class FailureForm(FormPage[FailureGroup]):
    """A failure: what it is, whom it hit, and what is to be done."""

    before = "operator/failures/failure.html"

    def context(self) -> dict[str, Any]:
        failure = self.row
        stalled = self.seen(Job.objects.stalled().filter(failure=failure))
        circuits = self.seen(Circuit.objects.open().with_held().filter(engine=failure.engine))
        strip = strip_of(failure.by_hour())
        return {
            "failure": failure,
            "may_change": self.admin.has_steer_permission(self.request),
            "may_read": self.request.user.has_perms((PREVIEW_CONTEXT, *SEE_MEMORY)),
            "bar": BAR,
            "bar_width": BAR / STRIP_HOURS - 1,
            "strip": strip,
            "hours": [hour for hour in reversed(strip) if hour.count],
            **_retry(stalled.count()),
            "jobs": stalled.select_related("user", "session__user", "stream").order_by("-id")[:SHOWN],
            "people": self._people(stalled),
            "not_remembered": self._not_remembered(stalled),
            "calls": self._calls().select_related("exchange", "prompt_version__resource").order_by("-id")[:SHOWN],
            "versions": self._versions(),
            "circuits": circuits,
        }

    def _calls(self) -> Any:
        return self.seen(EngineCall.objects.filter(failure=self.row))

    def _people(self, stalled: Any) -> dict[str, Any]:
        of_people = stalled.filter(user__isnull=False).values("user", "user__user_id").order_by()
        most = of_people.annotate(jobs=Count("pk")).order_by("-jobs", "user")[: SHARED + 1]
        return {"most": list(most)[:SHARED], "are_more": len(most) > SHARED}

    def _versions(self) -> Any:
        calls = self._calls().exclude(prompt_version=None).order_by()
        named = calls.values("prompt_version__number", "prompt_version__resource__uri")
        return named.annotate(calls=Count("pk")).order_by("-calls")[:SHARED]

    def _not_remembered(self, stalled: Any) -> str:
        """Say what of people's conversations isn't remembered because of it; blank where that isn't counted."""
        if self.row.process not in NOT_REMEMBERED:
            return ""
        words, done = NOT_REMEMBERED[self.row.process]
        rows = stalled.filter(session__isnull=False).order_by().values("session").distinct()
        sessions = self.seen(Session.objects.filter(pk__in=rows))
        found = sessions.aggregate(turns=Sum(F("message_count") - F(done)), sessions=Count("pk"))
        return f"{found['turns'] or 0:,} {words} in {found['sessions']:,} sessions" if found["sessions"] else ""


def _retry(stalled: int) -> dict[str, Any]:
    """Say what it means to try all again."""
    return {
        "stalled_count": stalled,
        "retry_warning": f"Up to {AT_ONCE} failed jobs are queued again, and waiting jobs become due now. If the "
        "circuit of their engine is open, one job tries the engine.",
        "retry_button": f"Retry {stalled:,} job{pluralize(stalled)}",
    }


class SteerFailure(RowAction[FailureGroup]):
    """A change of a failure by whoever may change jobs."""

    permission = "steer"


class RetryFailure(SteerFailure):
    """Try again all that waits because of it."""

    route, name = "<int:pk>/retry/", "retry"

    def change(self, failure: FailureGroup) -> str:
        retried = retry_all(failure, actor=self.actor)
        self.log(failure, f"Retried: {retried}.", f"{failure}: {retried}.")
        return change_url(failure)


class MuteFailure(SteerFailure):
    """Leave it out of the dashboard."""

    route, name = "<int:pk>/mute/", "mute"

    def change(self, failure: FailureGroup) -> str:
        failure.mute(self.actor)
        self.log(failure, "Muted.", f"{failure} is muted. The dashboard no longer shows it.")
        return change_url(failure)


class UnmuteFailure(SteerFailure):
    """Tell of it on the dashboard again."""

    route, name = "<int:pk>/unmute/", "unmute"

    def change(self, failure: FailureGroup) -> str:
        failure.unmute()
        self.log(failure, "Unmuted.", f"{failure} is unmuted. The dashboard shows it again.")
        return change_url(failure)
