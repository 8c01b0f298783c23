"""The list of releases: items shared from people's memory, who decided to share them, and their state."""

from typing import Any

from django.contrib import admin
from django.db.models import Count, QuerySet
from django.http import HttpRequest
from unfold.decorators import display

from moments_app.models import Release
from moments_app.operator.views.release import (
    Candidates,
    ExtendRelease,
    KeepPrivate,
    ReleaseCandidate,
    ReleaseForm,
    RevokeRelease,
    RewordRelease,
)
from sessions_app.admin.actors import actor_column
from sessions_app.admin.ask_first import asks_first
from sessions_app.admin.base import ReadOnlyAdmin

STATES = {"active": "success", "revoked": "warning", "invalid signature": "danger"}  # colors


@admin.register(Release)
class ReleaseAdmin(ReadOnlyAdmin):
    """Releases, newest first."""

    list_display = ("wording", "shard", "people", "by", "created_at", "state")
    by = actor_column("actor", "Released by")
    revoked = actor_column("revoked_by", "Revoked by")
    applications = ("stream__application",)
    list_filter = (("revoked_at", admin.EmptyFieldListFilter),)
    search_fields = search_prefixes = ("wording", "actor")
    search_help_text = "Start of the shared text, or of the operator (operator:…)"
    ordering = ("-id",)
    when_empty = "Nothing is shared with others yet. Items that could be shared wait under Pending decisions."
    list_before_template = "operator/releases/list.html"
    actions = ("revoke_selected",)
    form_page = ReleaseForm
    views = (Candidates, ReleaseCandidate, KeepPrivate, RevokeRelease, ExtendRelease, RewordRelease)
    fields = ("wording", "note", ("by", "created_at"), ("revoked_at", "revoked", "release_id"))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Release]:
        queryset: QuerySet[Release] = super().get_queryset(request)
        people = Count("sources__user", distinct=True)
        return queryset.select_related("stream", "atom").annotate(people=people)

    def has_release_permission(self, request: HttpRequest) -> bool:
        """Allow operators who may change releases to revoke, extend and reword them."""
        return request.user.has_perm("moments_app.change_release")

    @admin.display(description="Shared memory")
    def shard(self, release: Release) -> str:
        return release.stream.title

    @admin.display(description="Source people")
    def people(self, release: Release) -> Any:
        return release.people  # type: ignore[attr-defined]

    @display(description="State", label=STATES)  # type: ignore[untyped-decorator]
    def state(self, release: Release) -> str:
        if release.revoked_at:
            return "revoked"
        return "active" if release.is_signed else "invalid signature"

    @admin.action(description="Revoke selected releases", permissions=["release"])
    @asks_first(
        "Other people's contexts and searches no longer include them. To share them again, create new releases.",
        button="Revoke these releases",
    )
    def revoke_selected(self, request: HttpRequest, queryset: QuerySet[Release]) -> None:
        """Revoke each release. Report those that can't be revoked, and why."""
        RevokeRelease.change_each(self, request, queryset)
