"""The page of a person, the history of their profile, exporting what is kept of them, and erasing them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryFile
from typing import Any

from django.contrib import messages
from django.db.models import Model, QuerySet
from django.http import FileResponse, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import get_object_or_404

from moments_app.engines.calls.profile import LINE_MAX
from moments_app.models import (
    ContextReceipt,
    Entity,
    Job,
    MemoryAtom,
    MemoryStream,
    Moment,
    ProfileLine,
    Retraction,
    Summary,
)
from moments_app.moments.edit_line import edit_line, restore_line
from moments_app.operator.pager import first_of
from moments_app.operator.profile_history import history
from moments_app.operator.rights import EXPORT_PERSON
from sessions_app.admin.links import change_url, list_url, page_url
from sessions_app.admin.views.base import FormPage, RowAction, RowPage, RowView, may_see
from sessions_app.admin.views.daily_limit import usage_context
from sessions_app.limited_operators import unlimited
from sessions_app.models import Event, Message, ProfileVersion, Session, UserProfile
from sessions_app.models.event import USER_EXPORTED
from sessions_app.people.erase import OnHold, erase_user, holdings
from sessions_app.people.export import CannotExport, export_user

KEPT: dict[str, type[Model]] = {
    "Sessions": Session,
    "Moments": Moment,
    "Summaries": Summary,
    "Streams": MemoryStream,
    "Facts and observations": MemoryAtom,
    "Tasks and goals": Entity,
    "Retractions": Retraction,
    "Jobs": Job,
    "Context receipts": ContextReceipt,
}
COUNTED = 100
READINGS_SHOWN = 10
ENDED_SHOWN = 50


@dataclass(frozen=True)
class KeptRows:
    """Rows of a person, of one kind: how many, and their list."""

    label: str
    count: str
    url: str


class ProfileForm(FormPage[UserProfile]):
    """Ways to what is kept of a person, and to what can be done with all of it; and what they have used."""

    before, after = "operator/profiles/memory.html", "operator/profiles/after.html"

    def context(self) -> dict[str, Any]:
        return (
            usage_context(self.request, self.row)
            | {
                "profile": self.row,
                "put_off": _put_off(self.row),
                "kept": _kept(self.request, self.row),
                "may_erase": self.request.user.has_perm("sessions_app.delete_userprofile"),
            }
            | self._readings()
        )

    def _readings(self) -> dict[str, Any]:
        """Read who read of the person last, for those who may see events."""
        if not may_see(self.request, Event):
            return {"readings": None}
        newest, more = first_of(Event.objects.readings_of(self.row), READINGS_SHOWN)
        return {"readings": newest, "more_readings": more}


class ProfileVersions(RowPage[UserProfile]):
    """The states a profile was in, and what changed between two of them."""

    route, name = "<int:pk>/versions/", "versions"
    template_name = "operator/profiles/versions.html"

    def get_title(self) -> str:
        return f"History of {self.row}"

    def context(self) -> dict[str, Any]:
        shown, asked = history(self.row, older_than=self.number("older")), self.request.GET
        return {
            "profile": self.row,
            "history": shown,
            "comparison": shown.compare(asked.get("from", ""), asked.get("to", "")),
            "may_change": self.admin.has_change_permission(self.request, self.row),
        }


class RestoreProfile(RowAction[UserProfile]):
    """Make a profile what it was."""

    route, name = "<int:pk>/versions/<int:version>/restore/", "restore"

    def change(self, profile: UserProfile) -> str:
        former: ProfileVersion = get_object_or_404(profile.versions, pk=self.kwargs["version"])
        profile.restore(former, actor=self.actor)
        log = f"Restored as it was before {former.created_at:%Y-%m-%d %H:%M}."
        self.log(profile, log, "The profile says again what it said then.")
        return page_url(profile, "versions", profile.pk)


class ProfileLines(RowPage[UserProfile]):
    """The lines of a profile with the turns that they come from, and those that stood there before."""

    route, name = "<int:pk>/lines/", "lines"
    template_name = "operator/profiles/lines.html"

    def get_title(self) -> str:
        return f"Profile of {self.row}, line by line"

    def context(self) -> dict[str, Any]:
        rows = ProfileLine.objects.filter(user=self.row).select_related("job", "replaced_by")
        standing = list(rows.standing().in_order())
        ended, more = first_of(rows.exclude(ended_at=None).order_by("-ended_at", "-pk"), ENDED_SHOWN)
        return {
            "profile": self.row,
            "lines": self._with_sources(standing),
            "ended": self._with_sources(ended),
            "more_ended": more,
            "may_change": self.admin.has_change_permission(self.request, self.row),
        }

    def _with_sources(self, rows: Sequence[ProfileLine]) -> list[tuple[ProfileLine, list[Message]]]:
        """Return lines with those of their turns that are there, for whoever may see turns."""
        named = {pk for row in rows for pk in row.source_message_ids}
        turns = self.seen(Message.objects.for_user(self.row).filter(pk__in=named).select_related("session"))
        found = {turn.pk: turn for turn in turns.defer("content", "payload")}
        return [(row, [found[pk] for pk in row.source_message_ids if pk in found]) for row in rows]


class LineAction(RowAction[UserProfile]):
    """A change of one line of a profile.

    Attributes:
        done: what the operator is told.
    """

    done = ""

    def change(self, profile: UserProfile) -> str:
        line = get_object_or_404(ProfileLine.objects.filter(user=profile), pk=self.kwargs["line"])
        self.attempt(profile, partial(self.do, line), log=f"{self.done}: {line.line_id}.", message=f"{self.done}.")
        return page_url(profile, "lines", profile.pk)

    def do(self, line: ProfileLine) -> None:
        """Change the line."""
        raise NotImplementedError


class EditLine(LineAction):
    """Have a line say what the operator wrote; blank takes it out."""

    route, name = "<int:pk>/lines/<int:line>/edit/", "edit_line"
    done = "Corrected; engines leave the line as it is"

    def do(self, line: ProfileLine) -> None:
        edit_line(line, self.request.POST.get("text", "")[:LINE_MAX], actor=self.actor)


class RestoreLine(LineAction):
    """Have a line stand again that ended."""

    route, name = "<int:pk>/lines/<int:line>/restore/", "restore_line"
    done = "The line stands again"

    def do(self, line: ProfileLine) -> None:
        restore_line(line, actor=self.actor)


class ExportProfile(RowView[UserProfile]):
    """Everything that is kept of a person, as a file: each time it is an event."""

    route, name, needs = "<path:pk>/export/", "export", (EXPORT_PERSON,)

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
        file = TemporaryFile()  # noqa: SIM115 (the response closes it)
        try:
            export_user(self.row.user_id, file, application=self.row.application_id)
        except CannotExport as error:
            messages.error(request, str(error))
            return HttpResponseRedirect(change_url(self.row))
        file.seek(0)
        Event.objects.create(type=USER_EXPORTED, actor=self.actor, user_pk=self.row.pk)
        return FileResponse(file, as_attachment=True, filename="export.zip", content_type="application/zip")


class EraseProfile(RowPage[UserProfile]):
    """Ask for the `user_id` to be typed, and erase the person."""

    route, name = "<path:pk>/erase/", "erase"
    template_name = "operator/profiles/erase.html"

    def has_permission(self) -> bool:
        return self.request.user.has_perm("sessions_app.delete_userprofile")

    def get_title(self) -> str:
        return f"Erase {self.row}"

    def context(self) -> dict[str, Any]:
        return {
            "profile": self.row,
            "rows": holdings(self.row).most_common(),
            "held": Session.objects.for_user(self.row).filter(legal_hold=True).count(),
        }

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        if request.POST.get("user_id") != self.row.user_id:
            return self.page(problem="That is not the user_id. Nothing was erased.")
        person = self.row
        listed = holdings(person).total()  # as the page said before
        try:
            with unlimited():  # nothing may be left of the person that this operator doesn't see, as in others' logs
                erased = erase_user(person.user_id, application=person.application_id, actor=self.actor)
        except (OnHold, UserProfile.DoesNotExist) as error:
            return self.page(problem=str(error))
        more = max(0, erased.rows.total() - listed)
        beside = f", and {more:,} that go as well" if more else ""
        messages.success(request, f"Erased {listed:,} listed{beside}; nothing is left. Event {erased.erasure_id}")
        if erased.has_files_left:
            messages.warning(request, "The storage of archives failed; the queue tries again to remove the files.")
        return HttpResponseRedirect(list_url(UserProfile))


def _put_off(profile: UserProfile) -> dict[str, Any] | None:
    """Return how many of a person's jobs wait for another day, and why."""
    jobs = Job.objects.later().filter(user=profile, held_by=Job.Held.BUDGET)
    number = jobs.count()
    url = list_url(Job, user__id__exact=profile.pk, state="waiting")
    return {"number": number, "reason": jobs.values_list("error", flat=True)[0], "url": url} if number else None


def _kept(request: HttpRequest, profile: UserProfile) -> list[KeptRows]:
    """Count what there is of a person, as far as the operator may see it."""
    return [
        KeptRows(
            label=label,
            count=_some(model._default_manager.filter(user=profile)),
            url=list_url(model, user__id__exact=profile.pk),
        )
        for label, model in KEPT.items()
        if may_see(request, model)
    ]


def _some(rows: QuerySet[Any]) -> str:
    """Count a few rows; of many say only that they are many, for nobody waits to have them counted."""
    number = rows[: COUNTED + 1].count()
    return f"{COUNTED}+" if number > COUNTED else str(number)
