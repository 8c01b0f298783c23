"""Actions on the page of a session: builds, digests, settling, holds."""

from typing import Any

from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from moments_app.jobs.process import CannotRun
from moments_app.models import Job
from moments_app.moments.build import BuildMoments
from moments_app.moments.division import builder_prompt
from moments_app.moments.rebuild import RebuildMoments
from moments_app.operator.views.session import TURNS, SessionPage
from moments_app.provenance.remake import calls_for
from moments_app.sessions.digest import DigestSession
from moments_app.sessions.settle import Settle
from sessions_app.admin.links import change_url
from sessions_app.admin.views.base import OperatorView, RowAction
from sessions_app.models import Session


class BuildForm(forms.Form):
    """The lag of a build; blank for the configured one."""

    lag = forms.IntegerField(min_value=0, max_value=1_000_000, required=False)


class RequestsJob(OperatorView):
    """A base for views that queue jobs for a session."""

    def request_job(self, session: Session, process: str, message: str, *, params: dict[str, Any] | None = None) -> str:
        """Queue a job regardless of the thresholds, and return the URL of its page."""
        with transaction.atomic():
            job = Job.objects.request(process, session, requested_by=self.actor, force=True, params=params)
        self.log(session, f"{message}: job {job.job_id}.", f"{message}. The tab Jobs shows its state.")
        return change_url(job)


class BuildSession(RequestsJob, RowAction[Session]):
    """Queue a forced build, optionally with a lag."""

    route, name = "<int:pk>/build/", "build"

    def change(self, session: Session) -> str:
        form = BuildForm(self.request.POST)
        if not form.is_valid():
            messages.error(self.request, f"Turns to keep live: {' '.join(map(str, form['lag'].errors))}")
            return change_url(session)
        params = {name: value for name, value in form.cleaned_data.items() if value is not None}
        return self.request_job(session, BuildMoments.name, "Queued a build of moments", params=params)


class RequestDigest(RequestsJob, RowAction[Session]):
    """Queue a digest of the live window."""

    route, name = "<int:pk>/digest/", "digest"

    def change(self, session: Session) -> str:
        return self.request_job(session, DigestSession.name, "Queued a compaction of the session")


class SettleSession(RequestsJob, RowAction[Session]):
    """Queue settling of the session, which runs once the session is quiet."""

    route, name = "<int:pk>/settle/", "settle"

    def change(self, session: Session) -> str:
        return self.request_job(
            session, Settle.name, "Queued a job that updates the memory of the session and then clears it"
        )


class HoldSession(RowAction[Session]):
    """Put the session under legal hold, or end the hold."""

    route, name = "<int:pk>/hold/", "hold"

    def change(self, session: Session) -> str:
        held = bool(self.request.POST.get("held"))
        if held != session.legal_hold:
            session.hold(held, actor=self.actor)
            entry = "Put under legal hold." if held else "Released from legal hold."
            self.admin.log_change(self.request, session, entry)
        message = "The session is under legal hold." if held else "The session is no longer under legal hold."
        messages.success(self.request, message)
        return change_url(session)


class RebuildSession(RequestsJob, SessionPage):
    """Show what would be rebuilt and its cost, and queue the rebuild."""

    route, name, permission, needs = "<int:pk>/rebuild/", "rebuild", "change", ("moments_app.view_moment",)
    template_name = "operator/sessions/rebuild.html"

    def context(self) -> dict[str, Any]:
        return super().context() | _to_rebuild(self.row)

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        message = "Queued a rebuild of the moments"
        return HttpResponseRedirect(self.request_job(self.row, RebuildMoments.name, message))


def _to_rebuild(session: Session) -> dict[str, Any]:
    """Return what a rebuild would process, and its approximate cost."""
    moments = session.moments.filter(user_id=session.user_id, first_sequence__gte=session.kept_from_sequence)
    turns = session.messages.turns().filter(user_id=session.user_id, moment__isnull=False)
    shown = {
        "moments": list(moments.defer("search_vector").order_by("first_sequence")[:TURNS]),
        "moment_count": moments.count(),
        "engine_calls": calls_for(turns),
    }
    try:
        return shown | {"prompt": builder_prompt(session)}
    except CannotRun as error:
        return shown | {"problem": str(error)}
