"""People: their profiles, the history of these, and ways to everything that is kept of them."""

from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import FileResponse, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.views.decorators.http import require_POST
from unfold.paginator import InfinitePaginator

from moments_app.models import ContextReceipt, Entity, Job, MemoryAtom, MemoryStream, Moment, Retraction, Summary
from moments_app.operator.admin.links import chips, list_url
from moments_app.operator.admin.profile_history import history
from sessions_app.admin.base import PageAdmin, prefix_search
from sessions_app.models import ProfileVersion, Session, UserProfile
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
VERSIONED = {"summary", "interests", "preferred_topics"}


@dataclass(frozen=True)
class Kept:
    """Rows of a person, of one kind: how many, and their list."""

    label: str
    count: str
    url: str


@admin.register(UserProfile)
class UserProfileAdmin(PageAdmin):
    """The profile of a person, to read and to correct."""

    list_display = ("user_id", "gist", "topics", "timezone", "updated_at")
    paginator = InfinitePaginator
    search_fields = ("user_id",)
    search_help_text = "The beginning of a user_id"
    ordering = ("-updated_at",)
    readonly_fields = ("created_at", "updated_at")
    fields = ("summary", ("interests", "preferred_topics"), ("timezone", "metadata"), ("created_at", "updated_at"))
    change_form_outer_before_template = "operator/profiles/memory.html"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[UserProfile], search_term: str
    ) -> tuple[QuerySet[UserProfile], bool]:
        return prefix_search(queryset, search_term, "user_id"), False

    def save_model(self, request: HttpRequest, obj: UserProfile, form: Any, change: bool) -> None:
        """Saves what was edited and nothing else: an engine may have added to the rest since the page was opened."""
        now = UserProfile.objects.locked().get(pk=obj.pk)
        if VERSIONED & set(form.changed_data):
            now.keep_version(f"operator:{request.user.get_username()}")
        obj.save(update_fields=[*form.changed_data, "updated_at"])

    def around(self, request: HttpRequest, obj: UserProfile) -> dict[str, Any]:
        """Ways to what is kept of the person, and to what can be done with all of it."""
        return {
            "profile": obj,
            "kept": _kept(request, obj),
            "may_erase": request.user.has_perm("sessions_app.delete_userprofile"),
        }

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # made on first use

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # a person's data goes as a whole or not at all: see `erase`

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("<int:pk>/versions/", view(self.versions), name="sessions_app_userprofile_versions"),
            path(
                "<int:pk>/versions/<int:version>/restore/",
                view(self.restore),
                name="sessions_app_userprofile_restore",
            ),
            path("<path:pk>/export/", view(self.export), name="sessions_app_userprofile_export"),
            path("<path:pk>/erase/", view(self.erase), name="sessions_app_userprofile_erase"),
            *super().get_urls(),
        ]

    def versions(self, request: HttpRequest, pk: int) -> HttpResponse:
        """The states the profile was in, and what is between two of them."""
        profile = get_object_or_404(UserProfile, pk=pk)
        if not self.has_view_permission(request, profile):
            raise PermissionDenied
        older = request.GET.get("older", "")
        shown = history(profile, older_than=int(older) if older.isdecimal() and len(older) < 19 else None)
        context = self.admin_site.each_context(request) | {
            "title": f"History of {profile}",
            "profile": profile,
            "history": shown,
            "comparison": shown.compare(request.GET.get("from", ""), request.GET.get("to", "")),
            "may_change": self.has_change_permission(request, profile),
        }
        return render(request, "operator/profiles/versions.html", context)

    @method_decorator(require_POST)
    def restore(self, request: HttpRequest, pk: int, version: int) -> HttpResponse:
        """Makes the profile what it was."""
        profile = get_object_or_404(UserProfile, pk=pk)
        if not self.has_change_permission(request, profile):
            raise PermissionDenied
        former: ProfileVersion = get_object_or_404(profile.versions, pk=version)
        profile.restore(former, actor=f"operator:{request.user.get_username()}")
        self.log_change(request, profile, f"Restored as it was before {former.created_at:%Y-%m-%d %H:%M}.")
        messages.success(request, "The profile says again what it said then.")
        return HttpResponseRedirect(reverse("admin:sessions_app_userprofile_versions", args=[profile.pk]))

    @admin.display(description="Summary")
    def gist(self, profile: UserProfile) -> str:
        return Truncator(profile.summary).chars(120)

    @admin.display(description="Preferred topics")
    def topics(self, profile: UserProfile) -> SafeString:
        return chips(profile.preferred_topics)

    def export(self, request: HttpRequest, pk: str) -> HttpResponseBase:
        """Everything about the person as a file."""
        profile = get_object_or_404(UserProfile, pk=pk)
        if not self.has_view_permission(request, profile):
            raise PermissionDenied
        file = TemporaryFile()  # noqa: SIM115 (the response closes it)
        try:
            export_user(profile.user_id, file)
        except CannotExport as error:
            messages.error(request, str(error))
            return HttpResponseRedirect(reverse("admin:sessions_app_userprofile_change", args=[profile.pk]))
        file.seek(0)
        return FileResponse(file, as_attachment=True, filename="export.zip", content_type="application/zip")

    def erase(self, request: HttpRequest, pk: str) -> HttpResponse:
        """Asks for the `user_id` to be typed, and erases the person."""
        profile = get_object_or_404(UserProfile, pk=pk)
        if not request.user.has_perm("sessions_app.delete_userprofile"):
            raise PermissionDenied
        problem = self._erased(request, profile) if request.method == "POST" else ""
        if problem is None:
            return HttpResponseRedirect(reverse("admin:sessions_app_userprofile_changelist"))
        context = self.admin_site.each_context(request) | {
            "title": f"Erase {profile}",
            "profile": profile,
            "rows": holdings(profile).most_common(),
            "held": Session.objects.for_user(profile).filter(legal_hold=True).count(),
            "problem": problem,
        }
        return render(request, "operator/profiles/erase.html", context)

    def _erased(self, request: HttpRequest, profile: UserProfile) -> str | None:
        """Why the person was not erased; None when they were."""
        if request.POST.get("user_id") != profile.user_id:
            return "That is not the user_id. Nothing was erased."
        try:
            erased = erase_user(profile.user_id, actor=f"operator:{request.user.get_username()}")
        except (OnHold, UserProfile.DoesNotExist) as error:
            return str(error)
        messages.success(request, f"Erased {erased.rows.total():,} rows; nothing is left. Event {erased.erasure_id}")
        if erased.has_files_left:
            messages.warning(request, "The storage of archives failed; the queue tries again to remove the files.")
        return None


def _kept(request: HttpRequest, profile: UserProfile) -> list[Kept]:
    """What there is of a person, as far as the operator may see it."""
    return [
        Kept(
            label=label,
            count=_some(model._default_manager.filter(user=profile)),
            url=list_url(model, user__id__exact=profile.pk),
        )
        for label, model in KEPT.items()
        if request.user.has_perm(f"{model._meta.app_label}.view_{model._meta.model_name}")
    ]


def _some(rows: QuerySet[Any]) -> str:
    """Their number; of many only that they are many, for nobody waits to have them counted."""
    number = rows[: COUNTED + 1].count()
    return f"{COUNTED}+" if number > COUNTED else str(number)
