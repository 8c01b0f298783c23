"""The profile of a person line by line and in history, exporting what is kept of them, and erasing them."""

from functools import partial
from tempfile import TemporaryFile
from typing import Any

from django.contrib import messages
from django.http import FileResponse, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import get_object_or_404

from moments_app.engines.calls.profile import LINE_MAX
from moments_app.models import (
    ProfileLine,
)
from moments_app.moments.edit_line import edit_line, restore_line
from moments_app.operator.pager import first_of
from moments_app.operator.profile_history import history
from moments_app.operator.rights import EXPORT_PERSON
from moments_app.operator.views.person import PersonPage, with_sources
from sessions_app.admin.actors import with_key_names
from sessions_app.admin.links import change_url, list_url, page_url
from sessions_app.admin.views.base import RowAction, RowPage, RowView
from sessions_app.limited_operators import unlimited
from sessions_app.models import Event, ProfileVersion, Session, UserProfile
from sessions_app.models.event import USER_EXPORTED
from sessions_app.people.erase import OnHold, erase_user, holdings
from sessions_app.people.export import CannotExport, export_user

ENDED_SHOWN = 50


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
        log = f"Restored the version from before {former.created_at:%Y-%m-%d %H:%M}."
        self.log(profile, log, "The profile is restored to that version.")
        return page_url(profile, "versions", profile.pk)


class ProfileLines(PersonPage):
    """The lines of a profile with the turns that they come from, and those that stood there before."""

    route, name, tab = "<int:pk>/lines/", "lines", "Profile line by line"
    template_name = "operator/profiles/lines.html"

    def context(self) -> dict[str, Any]:
        rows = ProfileLine.objects.filter(user=self.row).select_related("job", "replaced_by")
        rows = with_key_names(self.request, rows, "actor")
        rows = with_key_names(self.request, rows, "ended_by", name="ended_by_key")
        standing = list(rows.standing().in_order())
        ended, more = first_of(rows.exclude(ended_at=None).order_by("-ended_at", "-pk"), ENDED_SHOWN)
        return super().context() | {
            "lines": with_sources(self, standing),
            "ended": with_sources(self, ended),
            "more_ended": more,
            "may_change": self.admin.has_change_permission(self.request, self.row),
        }


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
    done = "Corrected. Engines no longer change the line"

    def do(self, line: ProfileLine) -> None:
        edit_line(line, self.request.POST.get("text", "")[:LINE_MAX], actor=self.actor)


class RestoreLine(LineAction):
    """Have a line stand again that ended."""

    route, name = "<int:pk>/lines/<int:line>/restore/", "restore_line"
    done = "Restored the line"

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
        person = self.row  # looked up as the operator, who may not see them
        with unlimited():  # as the erasure counts: also what this operator doesn't see
            rows = holdings(person)
        return {
            "profile": person,
            "rows": rows.most_common(),
            "whole": rows.total(),
            "held": Session.objects.for_user(person).filter(legal_hold=True).count(),
        }

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        if request.POST.get("user_id") != self.row.user_id:
            return self.page(
                problem="user_id: the text doesn't match. Nothing was erased. Type the user_id exactly as shown."
            )
        person = self.row
        try:
            with unlimited():  # nothing may be left of the person that this operator doesn't see, as in others' logs
                erased = erase_user(person.user_id, application=person.application_id, actor=self.actor)
        except (OnHold, UserProfile.DoesNotExist) as error:
            return self.page(problem=str(error))
        messages.success(request, f"Erased {erased.rows.total():,} rows; nothing is left. Event {erased.erasure_id}")
        if erased.has_files_left:
            messages.warning(request, "The archive storage failed. A job retries to delete the files.")
        return HttpResponseRedirect(list_url(UserProfile))
