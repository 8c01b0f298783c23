"""Moments: the list, the page of a moment next to its source turns, and the chain of a person's moments."""

from collections.abc import Collection, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.paginator import InfinitePaginator

from moments_app.models import EngineCall, Moment
from moments_app.models.moment import CHAIN_ORDER, MomentQuerySet
from moments_app.moments.delete import delete_moment
from moments_app.operator import moment_chain
from moments_app.operator.admin.filters import ExactFilter, TagFilter, UserFilter
from moments_app.operator.as_of import AsOf
from moments_app.operator.pager import first_of
from moments_app.operator.transcript import entries
from sessions_app.admin.base import DaysFilter, PageAdmin, found_by
from sessions_app.admin.links import CHIPS, link_to, list_url, titled
from sessions_app.admin.reading import people_of
from sessions_app.admin.views.base import FormPage, OperatorPage, OperatorView, RowView, actor_of, may_see
from sessions_app.models import Message, UserProfile

SOURCE_TURNS = 200
CALLS_SHOWN = 5
CORRECTIONS_SHOWN = 10
SECTIONS = {"at": moment_chain.around, "before": moment_chain.earlier_than, "after": moment_chain.later_than}


class MomentForm(FormPage[Moment]):
    """The moments before and after a moment, its turns, and the job that created it."""

    before, after = "operator/moments/neighbors.html", "operator/moments/source.html"

    def context(self) -> dict[str, Any]:
        moment = self.row
        calls = EngineCall.objects.filter(job=moment.job_id or 0).order_by("-id")
        corrections = LogEntry.objects.filter(
            content_type=ContentType.objects.get_for_model(Moment), object_id=str(moment.pk)
        )
        return read(self, moment) | {
            "is_fullwidth": "1",
            "next_moment": Moment.objects.later_than(moment).first(),
            "calls": self.seen(calls)[:CALLS_SHOWN],
            "corrections": corrections.select_related("user")[:CORRECTIONS_SHOWN],
        }


class MomentReading(RowView[Moment]):
    """A moment next to its source turns, to open within the timeline."""

    route, name = "<int:pk>/reading/", "reading"

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        return render(request, "operator/moments/reading.html", read(self, self.row))


class Chain(OperatorPage):
    """A person's moments as a timeline, around the requested moment or the newest."""

    route, name = "chain/<int:user_pk>/", "chain"
    template_name = "operator/moments/chain.html"

    @cached_property
    def person(self) -> UserProfile:
        """The person of the URL."""
        return get_object_or_404(UserProfile, pk=self.kwargs["user_pk"])

    def get_title(self) -> str:
        return f"Moments of {self.person}"

    def context(self) -> dict[str, Any]:
        as_of = AsOf.of(self.request)
        moments = self.admin.get_queryset(self.request).for_user(self.person).newest_first()
        if as_of.time:
            moments = moments.filter(ends_at__lte=as_of.time)
        newest, oldest = moments.first(), moments.last()
        section = self._section_asked_for(moments, as_of.time) or (
            moment_chain.around(newest, as_of.time) if newest else None
        )
        shown = {"person": self.person, "newest": newest, "oldest": oldest, "section": section, "as_of": as_of}
        return shown | (read(self, section.opened) if section and section.opened else {})

    def people(self) -> Collection[int]:
        """Return the person of the chain."""
        return people_of(self.person)

    def _section_asked_for(self, moments: MomentQuerySet, until: datetime | None) -> moment_chain.ChainSection | None:
        """Read the section around the moment that the URL names, if it is one of the person's moments."""
        for name, section in SECTIONS.items():
            pk = self.number(name)
            if pk is not None and (moment := moments.filter(pk=pk).first()):
                return section(moment, until)
        return None


def read(view: OperatorView, moment: Moment) -> dict[str, Any]:
    """Read a moment with the moments it names, and with its turns if the operator of the view may see turns."""
    own = Moment.objects.filter(user_id=moment.user_id, key__in=moment.previous_moment_keys)
    named = {previous.key: previous for previous in own}
    turns = view.seen(Message.objects.filter(user_id=moment.user_id, moment=moment).in_order())
    shown, more = first_of(turns, SOURCE_TURNS)
    return {
        "moment": moment,
        "previous_moments": [named[key] for key in moment.previous_moment_keys if key in named],
        "entries": entries(view.request, shown),
        "sees_turns": may_see(view.request, Message),
        "has_more_turns": more is not None,
    }


class CategoryFilter(ExactFilter):
    """Moments of a category."""

    title, parameter_name, lookup = "category", "category", "category"


class TopicFilter(TagFilter):
    """Moments with a topic."""

    title, parameter_name, lookup = "topic", "topic", "topic_tags__contains"


class EmotionFilter(TagFilter):
    """Moments with an emotion."""

    title, parameter_name, lookup = "emotion", "emotion", "emotion_tags__contains"


@admin.register(Moment)
class MomentAdmin(PageAdmin):
    """Moments, which operators can search and correct."""

    list_display = ("told", "topics", "period", "user_link", "session_link", "engine")
    applications = ("user__application",)
    list_filter = (UserFilter, TopicFilter, EmotionFilter, CategoryFilter, ("starts_at", DaysFilter))
    list_filter_submit = True
    paginator = InfinitePaginator
    search_fields = ("key",)
    open_lookups = ("user__id__exact",)
    search_help_text = "Words from the name, summary or detail, or the start of a key or user_id"
    ordering = ("-starts_at", "-id")
    when_empty = (
        "No moments yet. Jobs write them from older turns. To write them now, press Build moments in a session."
    )
    date_hierarchy = None
    form_page = MomentForm
    views = (Chain, MomentReading)
    delete_confirmation_template = "operator/moments/delete.html"
    fields = ("name", "summary", "detail", "topic_tags", "emotion_tags", "present_persons", "category")

    class Media:
        js = ("operator/walk.js",)

    def get_queryset(self, request: HttpRequest) -> MomentQuerySet:
        queryset: MomentQuerySet = super().get_queryset(request)
        named = queryset.select_related("user", "source_session", "job", "prompt_version__resource")
        return named.defer("search_vector")

    def get_ordering(self, request: HttpRequest) -> Sequence[str]:
        """Sort by time. Sort one person's moments by their chain, which has an index."""
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

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def delete_model(self, request: HttpRequest, obj: Moment) -> None:
        delete_moment(obj, actor=actor_of(request))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Moment]) -> None:
        for moment in queryset:  # one by one: each deletion closes the gap in the chain
            self.delete_model(request, moment)

    @admin.display(description="Moment", ordering="key")
    def told(self, moment: Moment) -> SafeString:
        return titled(moment.key, moment.summary)

    @admin.display(description="Topics")
    def topics(self, moment: Moment) -> SafeString:
        """Return the topics with links to their moments."""
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
