"""The list of profiles, and the form for a profile's details."""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from unfold.paginator import InfinitePaginator

from moments_app.operator.views.fact import PersonFacts
from moments_app.operator.views.find import Find
from moments_app.operator.views.person import (
    PersonCost,
    PersonDays,
    PersonEntities,
    ProfileDetails,
    ProfileForm,
    Who,
)
from moments_app.operator.views.profile import EraseProfile, ExportProfile
from moments_app.streams.edit_profile import edit_profile, own_texts
from sessions_app.admin.base import PageAdmin, found_by
from sessions_app.admin.links import chips
from sessions_app.admin.views.base import actor_of
from sessions_app.models import UserProfile
from sessions_app.models.user_profile import DERIVED, EDITED

MOST_READ = 10_000  # maximum people whose name or summary matches; a common word would match everyone


class ProfileDetailsForm(forms.ModelForm):  # type: ignore[type-arg]
    """Shows the texts that people wrote into a profile, without those derived from statements."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial.update(own_texts(self.instance))


@admin.register(UserProfile)
class UserProfileAdmin(PageAdmin):
    """The profile of a person."""

    list_display = ("user_id", "gist", "topics", "timezone", "updated_at")
    applications = ("application",)
    list_filter = ("is_test",)
    paginator = InfinitePaginator
    search_fields = ("user_id",)
    search_help_text = "Start of a user_id, or words from a user_id or summary"
    ordering = ("-updated_at",)
    readonly_fields = ("created_at", "updated_at")
    form = ProfileDetailsForm
    fields = ("summary", ("interests", "preferred_topics"), ("timezone", "metadata"), ("created_at", "updated_at"))
    change_page = Who
    form_page = ProfileForm
    tabs = (Who, PersonDays, PersonFacts, PersonEntities, PersonCost, ProfileDetails)
    views = (Find, *tabs[1:], ExportProfile, EraseProfile)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[UserProfile], search_term: str
    ) -> tuple[QuerySet[UserProfile], bool]:
        term = search_term.strip().replace("\0", "")
        if not term:
            return queryset, False
        named = queryset.filter(user_id__startswith=term)
        read = UserProfile.objects.told_of(term).values("pk")[:MOST_READ]
        return found_by(queryset, named, queryset.filter(pk__in=read)), False

    def save_model(self, request: HttpRequest, obj: UserProfile, form: Any, change: bool) -> None:
        """Save only the edited fields, because other fields may have changed since the page was opened."""
        now = UserProfile.objects.locked().get(pk=obj.pk)
        obj.save(update_fields=[*{*form.changed_data}.difference(DERIVED), "updated_at"])
        edits = {name: form.cleaned_data[name] for name in form.changed_data if name in EDITED}
        edit_profile(now, edits, actor=actor_of(request))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # created on first use

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False  # a person's data is only deleted completely: see `EraseProfile`

    @admin.display(description="Summary")
    def gist(self, profile: UserProfile) -> str:
        gist = Truncator(profile.summary).chars(120)
        return format_html('<span class="rem-chip">test person</span> {}', gist) if profile.is_test else gist

    @admin.display(description="Preferred topics")
    def topics(self, profile: UserProfile) -> SafeString:
        return chips(profile.preferred_topics)
