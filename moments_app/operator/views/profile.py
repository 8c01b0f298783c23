"""Export a person's data, and erase the person."""

from tempfile import TemporaryFile
from typing import Any

from django.contrib import messages
from django.http import FileResponse, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect

from moments_app.operator.rights import EXPORT_PERSON
from sessions_app.admin.links import change_url, list_url
from sessions_app.admin.views.base import RowPage, RowView, may_see
from sessions_app.limited_operators import unlimited
from sessions_app.models import Event, Session, UserProfile
from sessions_app.models.event import USER_EXPORTED
from sessions_app.people.erase import ERASED_EVENT, Erased, OnHold, SomethingLeft, erase_user, holdings
from sessions_app.people.export import CannotExport, export_user


class ExportProfile(RowView[UserProfile]):
    """All stored data of a person, as a file. Each export is logged as an event."""

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
    """Erase the person after the operator has typed the `user_id`."""

    route, name = "<path:pk>/erase/", "erase"
    template_name = "operator/profiles/erase.html"

    def has_permission(self) -> bool:
        return self.request.user.has_perm("sessions_app.delete_userprofile")

    def get_title(self) -> str:
        return f"Erase {self.row}"

    def context(self) -> dict[str, Any]:
        person = self.row  # loaded with the operator's limits, which may exclude the person
        with unlimited():  # counts everything that the erasure deletes, including rows that this operator can't see
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
            with unlimited():  # also deletes rows that this operator can't see, such as log entries of others
                erased = erase_user(person.user_id, application=person.application_id, actor=self.actor)
        except (OnHold, SomethingLeft, UserProfile.DoesNotExist) as error:
            return self.page(problem=str(error))
        messages.success(
            request,
            f"Erased {erased.rows.total():,} rows and names; nothing is left. Id of the erasure in the event "
            f"log: {erased.erasure_id}",
        )
        if erased.has_files_left:
            messages.warning(
                request,
                "The archive storage failed, so some archive files still exist. A job will try to delete them again.",
            )
        return HttpResponseRedirect(_receipt_of(request, erased))


def _receipt_of(request: HttpRequest, erased: Erased) -> str:
    """Return the page with the receipt of an erasure, or the list of people if the operator may not see events."""
    if not may_see(request, Event):
        return list_url(UserProfile)
    return change_url(Event.objects.get(type=ERASED_EVENT, payload__erasure_id=str(erased.erasure_id)))
