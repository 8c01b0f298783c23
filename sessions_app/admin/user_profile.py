"""People."""

from tempfile import TemporaryFile
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import FileResponse, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html

from sessions_app.admin.base import PageAdmin, prefix_search
from sessions_app.models import UserProfile
from sessions_app.processes.erase import OnHold, erase_user, holdings
from sessions_app.processes.export import CannotExport, export_user


@admin.register(UserProfile)
class UserProfileAdmin(PageAdmin):
    """The profile of a person, to read and to correct."""

    list_display = ("user_id", "preferred_topics", "timezone", "updated_at")
    search_fields = ("user_id",)
    search_help_text = "The beginning of a user_id"
    ordering = ("-updated_at",)
    readonly_fields = ("user_id", "created_at", "updated_at", "memory", "erasure")
    fields = (
        "user_id",
        "memory",
        "erasure",
        "summary",
        "interests",
        "preferred_topics",
        "timezone",
        "metadata",
        "created_at",
        "updated_at",
    )

    def get_fields(self, request: HttpRequest, obj: UserProfile | None = None) -> list[str]:
        return [name for name in self.fields if name != "erasure" or _may_erase(request)]

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[UserProfile], search_term: str
    ) -> tuple[QuerySet[UserProfile], bool]:
        return prefix_search(queryset, search_term, "user_id"), False

    def save_model(self, request: HttpRequest, obj: UserProfile, form: Any, change: bool) -> None:
        UserProfile.objects.locked().get(pk=obj.pk).keep_version(f"operator:{request.user.get_username()}")
        super().save_model(request, obj, form, change)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # made on first use

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # a person's data goes as a whole or not at all: see `erase`

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("<path:pk>/export/", view(self.export), name="sessions_app_userprofile_export"),
            path("<path:pk>/erase/", view(self.erase), name="sessions_app_userprofile_erase"),
            *super().get_urls(),
        ]

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
        if not _may_erase(request):
            raise PermissionDenied
        problem = self._erased(request, profile) if request.method == "POST" else ""
        if problem is None:
            return HttpResponseRedirect(reverse("admin:sessions_app_userprofile_changelist"))
        rows = list(holdings(profile).items())
        shown = {"title": f"Erase {profile}", "profile": profile, "rows": rows, "problem": problem}
        return render(request, "admin/erase_user.html", self.admin_site.each_context(request) | shown)

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

    @admin.display(description="Memory")
    def memory(self, profile: UserProfile) -> str:
        """Ways to what is kept of this person."""
        sessions = reverse("admin:sessions_app_session_changelist")
        moments = reverse("admin:moments_app_moment_changelist")
        return format_html(
            '<a class="rem-link" href="{}?user__id__exact={}">Sessions</a> · '
            '<a class="rem-link" href="{}?user__id__exact={}">Moments</a> · '
            '<a class="rem-link" href="{}">Export</a>',
            sessions,
            profile.pk,
            moments,
            profile.pk,
            reverse("admin:sessions_app_userprofile_export", args=[profile.pk]),
        )

    @admin.display(description="Erasing")
    def erasure(self, profile: UserProfile) -> str:
        """The way to the page that asks whether to."""
        url = reverse("admin:sessions_app_userprofile_erase", args=[profile.pk])
        return format_html('<a class="rem-link" href="{}">Erase…</a>', url)


def _may_erase(request: HttpRequest) -> bool:
    return request.user.has_perm("sessions_app.delete_userprofile")
