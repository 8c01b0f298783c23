"""The list of people, the form of a person's details, and export and erasure of a person's data."""

from tempfile import TemporaryFile
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import FileResponse, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.text import Truncator
from unfold.paginator import InfinitePaginator

from moments_app.operator.person_pages import EXPORT_PERSON
from moments_app.operator.views.fact import PersonFacts
from moments_app.operator.views.find import Find
from moments_app.operator.views.person import (
    PersonCost,
    PersonDays,
    PersonEntities,
    PersonOverview,
    ProfileDetails,
    ProfileForm,
)
from moments_app.streams.edit import edit_profile, own_texts
from sessions_app.admin.base import PageAdmin, matching_any
from sessions_app.admin.links import change_url, chips, column, list_url
from sessions_app.admin.views import RowPage, RowView, actor_of, may_see
from sessions_app.limited_operators import unlimited
from sessions_app.models import Event, Session, UserProfile
from sessions_app.models.event import USER_EXPORTED
from sessions_app.models.user_profile import DERIVED, EDITED
from sessions_app.people.erase import ERASED_EVENT, ErasureResult, OnHold, RowsRemain, count_erasable_rows, erase_user
from sessions_app.people.export import CannotExport, export_user

MAX_FOUND = 10_000  # maximum number of people that a search returns; a common word matches everyone


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
        person = self.row  # loaded before `unlimited()`, so the operator's limits apply
        with unlimited():  # counts everything that the erasure deletes, including rows that this operator can't see
            rows = count_erasable_rows(person)
        return {
            "profile": person,
            "rows": rows.most_common(),
            "total": rows.total(),
            "held_sessions": Session.objects.for_user(person).filter(legal_hold=True).count(),
        }

    def post(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        if request.POST.get("user_id") != self.row.user_id:
            return self.page(problem="The user_id doesn't match. Nothing was erased. Type it exactly as shown.")
        person = self.row
        try:
            with unlimited():  # also deletes rows that this operator can't see, such as log entries of others
                erased = erase_user(person.user_id, application=person.application_id, actor=self.actor)
        except (OnHold, RowsRemain, UserProfile.DoesNotExist) as error:
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


def _receipt_of(request: HttpRequest, erased: ErasureResult) -> str:
    """Return the URL of the erasure's receipt, or of the list of people if the operator may not see events."""
    if not may_see(request, Event):
        return list_url(UserProfile)
    return change_url(Event.objects.get(type=ERASED_EVENT, payload__erasure_id=str(erased.erasure_id)))


class ProfileDetailsForm(forms.ModelForm):  # type: ignore[type-arg]
    """The texts that people wrote into a profile, without the texts derived from statements."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial.update(own_texts(self.instance))


@admin.register(UserProfile)
class UserProfileAdmin(PageAdmin):
    """The profile of a person."""

    list_display = ("user_id", "gist", "topics", "timezone", "updated_at")
    list_filter = ("is_test",)
    paginator = InfinitePaginator
    search_fields = ("user_id",)
    search_help_text = "Start of a user_id, or words from a user_id or summary"
    ordering = ("-updated_at",)
    when_empty = "No people yet. A person appears when an application stores the person's first message."
    may_add = False  # people are created on first use
    may_delete = False  # a person's data is only deleted completely: see `EraseProfile`
    readonly_fields = ("created_at", "updated_at")
    form = ProfileDetailsForm
    fields = ("summary", ("interests", "preferred_topics"), ("timezone", "metadata"), ("created_at", "updated_at"))
    change_page = PersonOverview
    form_page = ProfileForm
    topics = column("preferred_topics", "Preferred topics", chips)
    tabs = (PersonOverview, PersonDays, PersonFacts, PersonEntities, PersonCost, ProfileDetails)
    views = (Find, *tabs[1:], ExportProfile, EraseProfile)

    def search(self, request: HttpRequest, rows: QuerySet[UserProfile], term: str) -> QuerySet[UserProfile]:
        by_words = UserProfile.objects.matching(term).values("pk")[:MAX_FOUND]
        return matching_any(rows, rows.filter(user_id__startswith=term), rows.filter(pk__in=by_words))

    def save_model(self, request: HttpRequest, obj: UserProfile, form: Any, change: bool) -> None:
        """Save only the edited fields, because other fields may have changed since the page was opened."""
        now = UserProfile.objects.locked().get(pk=obj.pk)
        obj.save(update_fields=[*{*form.changed_data}.difference(DERIVED), "updated_at"])
        edits = {name: form.cleaned_data[name] for name in form.changed_data if name in EDITED}
        edit_profile(now, edits, actor=actor_of(request))

    @admin.display(description="Summary")
    def gist(self, profile: UserProfile) -> str:
        gist = Truncator(profile.summary).chars(120)
        return format_html('<span class="rem-chip">test person</span> {}', gist) if profile.is_test else gist
