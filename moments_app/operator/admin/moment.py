"""Moments: their list, the chain they form, and each beside the turns it came from."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import URLPattern, path
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.paginator import InfinitePaginator

from moments_app.models import EngineCall, Moment
from moments_app.models.moment import CHAIN_ORDER, MomentQuerySet
from moments_app.moments.delete import delete_moment
from moments_app.operator.admin import moment_chain
from moments_app.operator.admin.filters import ExactFilter, TagFilter, UserFilter
from moments_app.operator.admin.links import CHIPS, link_to, list_url
from moments_app.operator.admin.transcript import entries
from sessions_app.admin.base import DaysFilter, PageAdmin, found_by
from sessions_app.models import Message, UserProfile

SOURCE_TURNS = 200
CALLS_SHOWN = 5
CORRECTIONS_SHOWN = 10


class CategoryFilter(ExactFilter):
    """By category."""

    title, parameter_name, lookup = "category", "category", "category"


class TopicFilter(TagFilter):
    """By a topic."""

    title, parameter_name, lookup = "topic", "topic", "topic_tags__contains"


class EmotionFilter(TagFilter):
    """By an emotion."""

    title, parameter_name, lookup = "emotion", "emotion", "emotion_tags__contains"


@admin.register(Moment)
class MomentAdmin(PageAdmin):
    """Moments to find, to walk along, to read beside their source turns, and to correct."""

    list_display = ("key", "topics", "period", "user_link", "session_link", "engine")
    list_filter = (UserFilter, TopicFilter, EmotionFilter, CategoryFilter, ("starts_at", DaysFilter))
    list_filter_submit = True
    paginator = InfinitePaginator
    search_fields = ("key",)
    search_help_text = "Words of name, summary or detail, or the beginning of a key or user_id"
    ordering = ("-starts_at", "-id")
    date_hierarchy = None
    change_form_outer_before_template = "operator/moments/neighbors.html"
    change_form_outer_after_template = "operator/moments/source.html"
    delete_confirmation_template = "operator/moments/delete.html"
    fields = ("name", "summary", "detail", "topic_tags", "emotion_tags", "present_persons", "category")

    class Media:
        js = ("moments_app/walk.js",)

    def get_queryset(self, request: HttpRequest) -> MomentQuerySet:
        queryset: MomentQuerySet = super().get_queryset(request)
        named = queryset.select_related("user", "source_session", "job", "prompt_version__resource")
        return named.defer("search_vector")

    def get_ordering(self, request: HttpRequest) -> Sequence[str]:
        """By time; one person's as their chain goes, which an index of their own serves, and no other may."""
        is_of_one = any(request.GET.get(name) for name in (UserFilter.parameter_name, "user__id__exact"))
        return CHAIN_ORDER if is_of_one else self.ordering

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Moment], search_term: str
    ) -> tuple[QuerySet[Moment], bool]:
        term = search_term.strip().replace("\0", "")
        if not term:
            return queryset, False
        by_words = queryset.filter(pk__in=Moment.objects.matching(term).values("pk"))
        by_key, by_user = queryset.filter(key__startswith=term), queryset.filter(user__user_id__startswith=term)
        return found_by(queryset, by_words, by_key, by_user), False

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return lookup == "user__id__exact" or super().lookup_allowed(lookup, value, request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def delete_model(self, request: HttpRequest, obj: Moment) -> None:
        delete_moment(obj, actor=f"operator:{request.user.get_username()}")

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Moment]) -> None:
        for moment in queryset:  # one by one: each closes the chain over its gap
            self.delete_model(request, moment)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("chain/<int:user_pk>/", view(self.chain), name="moments_app_moment_chain"),
            path("<int:pk>/reading/", view(self.reading), name="moments_app_moment_reading"),
            *super().get_urls(),
        ]

    def around(self, request: HttpRequest, obj: Moment) -> dict[str, Any]:
        """The moments before and after it, its turns, and what it was made by."""
        corrected = LogEntry.objects.filter(
            content_type=ContentType.objects.get_for_model(Moment), object_id=str(obj.pk)
        )
        return read(obj) | {
            "is_fullwidth": "1",
            "next_moment": Moment.objects.later_than(obj).first(),
            "calls": EngineCall.objects.filter(job=obj.job_id).order_by("-id")[:CALLS_SHOWN] if obj.job_id else [],
            "corrections": corrected.select_related("user")[:CORRECTIONS_SHOWN],
        }

    def chain(self, request: HttpRequest, user_pk: int) -> HttpResponse:
        """A person's moments as a timeline, around the one asked for or the newest."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        person = get_object_or_404(UserProfile, pk=user_pk)
        moments = self.get_queryset(request).for_user(person).newest_first()
        newest, oldest = moments.first(), moments.last()
        stretch = _asked_for(request, moments) or (moment_chain.around(newest) if newest else None)
        shown = {"title": f"Chain of {person}", "person": person}
        shown |= {"newest": newest, "oldest": oldest, "stretch": stretch}
        if stretch and stretch.opened:
            shown |= read(stretch.opened)
        context = self.admin_site.each_context(request) | shown
        return render(request, "operator/moments/chain.html", context)

    def reading(self, request: HttpRequest, pk: int) -> HttpResponse:
        """A moment beside its source turns, to be opened in its place in the timeline."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        moment = get_object_or_404(self.get_queryset(request), pk=pk)
        return render(request, "operator/moments/reading.html", read(moment))

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Says what goes and what stays before it is done."""
        moment = self.get_object(request, object_id)
        context = (extra_context or {}) | {"moment": moment}
        response: HttpResponse = super().delete_view(request, object_id, context)
        return response

    @admin.display(description="Topics")
    def topics(self, moment: Moment) -> SafeString:
        """Links to the moments of each topic."""
        tags = moment.topic_tags[:CHIPS]
        links = format_html_join(
            " ", '<a class="rem-tag" href="{}">{}</a>', ((list_url(Moment, topic=tag), tag) for tag in tags)
        )
        return format_html('<span class="rem-tags">{}</span>', links)

    @admin.display(description="When", ordering="starts_at")
    def period(self, moment: Moment) -> SafeString:
        return format_html('<span class="rem-nowrap">{}</span>', moment.period)

    @admin.display(description="User")
    def user_link(self, moment: Moment) -> SafeString | str:
        return link_to(moment.user)

    @admin.display(description="Session")
    def session_link(self, moment: Moment) -> SafeString | str:
        return link_to(moment.source_session)


def read(moment: Moment) -> dict[str, Any]:
    """The moment with its turns and the moments it names."""
    own = Moment.objects.filter(user_id=moment.user_id, key__in=moment.previous_moment_keys)
    named = {previous.key: previous for previous in own}
    turns = Message.objects.turns().filter(user_id=moment.user_id, moment=moment).in_order()
    rows = list(turns[: SOURCE_TURNS + 1])
    return {
        "moment": moment,
        "previous_moments": [named[key] for key in moment.previous_moment_keys if key in named],
        "entries": entries(rows[:SOURCE_TURNS]),
        "has_more_turns": len(rows) > SOURCE_TURNS,
    }


def _asked_for(request: HttpRequest, moments: QuerySet[Moment]) -> moment_chain.Stretch | None:
    """The stretch that the address names by one of the person's moments."""
    kinds = {"at": moment_chain.around, "before": moment_chain.earlier_than, "after": moment_chain.later_than}
    for name, stretch in kinds.items():
        pk = request.GET.get(name, "")
        if pk.isdecimal() and len(pk) < 19 and (moment := moments.filter(pk=pk).first()):
            return stretch(moment)
    return None
