"""Moments, the chain they form, and the turns they came from."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from moments_app.admin.transcript import entries
from moments_app.models import Moment
from moments_app.processes.delete_moment import delete_moment
from sessions_app.admin.base import PageAdmin, prefix_search
from sessions_app.models import Message

SOURCE_TURNS = 200


@admin.register(Moment)
class MomentAdmin(PageAdmin):
    """A moment to read beside its source turns, and to correct."""

    list_display = ("key", "user", "topics", "starts_at", "ends_at", "source_session", "engine")
    list_filter = ("category", "engine")
    list_select_related = ("user", "source_session")
    search_fields = ("key",)
    search_help_text = "Words of name, summary or detail, or the beginning of a key or user_id"
    ordering = ("-id",)
    date_hierarchy = None
    change_form_outer_before_template = "admin/moment_chain.html"
    change_form_outer_after_template = "admin/moment_source.html"
    fieldsets = (
        (
            None,
            {"fields": ("name", "summary", "detail", ("topic_tags", "emotion_tags", "present_persons"), "category")},
        ),
        (
            "Where it comes from",
            {
                "fields": (
                    ("key", "user", "source_session"),
                    ("starts_at", "ends_at", "first_sequence", "last_sequence"),
                    ("engine", "prompt_version", "job", "created_at"),
                )
            },
        ),
    )
    readonly_fields = (
        "key",
        "user",
        "source_session",
        "starts_at",
        "ends_at",
        "first_sequence",
        "last_sequence",
        "engine",
        "prompt_version",
        "job",
        "created_at",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Moment]:
        queryset: QuerySet[Moment] = super().get_queryset(request)
        return queryset.defer("search_vector")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Moment], search_term: str
    ) -> tuple[QuerySet[Moment], bool]:
        if not search_term.strip():
            return queryset, False
        by_words = Moment.objects.matching(search_term.replace("\0", ""))
        found = prefix_search(queryset, search_term, "key", "user__user_id") | queryset.filter(pk__in=by_words)
        return found, False

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return lookup == "user__id__exact" or super().lookup_allowed(lookup, value, request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def delete_model(self, request: HttpRequest, obj: Moment) -> None:
        delete_moment(obj, actor=f"operator:{request.user.get_username()}")

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Moment]) -> None:
        for moment in queryset:  # one by one: each closes the chain over its gap
            self.delete_model(request, moment)

    def around(self, request: HttpRequest, obj: Moment) -> dict[str, Any]:
        """The moments before and after it, and its turns."""
        return _surroundings(obj)

    @admin.display(description="Topics")
    def topics(self, moment: Moment) -> str:
        return ", ".join(moment.topic_tags[:4])


def _surroundings(moment: Moment) -> dict[str, Any]:
    """The moments before and after it, and its turns."""
    own = Moment.objects.filter(user_id=moment.user_id)
    before = {m.key: m for m in own.filter(key__in=moment.previous_moment_keys)}
    turns = Message.objects.turns().filter(user_id=moment.user_id, moment=moment).in_order()
    rows = list(turns[: SOURCE_TURNS + 1])
    return {
        "moment": moment,
        "previous_moments": [before[key] for key in moment.previous_moment_keys if key in before],
        "next_moment": own.filter(pk__gt=moment.pk).order_by("id").first(),
        "entries": entries(rows[:SOURCE_TURNS]),
        "has_more_turns": len(rows) > SOURCE_TURNS,
    }
