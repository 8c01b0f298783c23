"""The list of moments, the page of a moment, and the timeline of a person's moments.

The timeline uses keyset pagination. A page starts at a moment, so all pages cost the same.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
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
from django.utils.timesince import timesince

from moments_app.models import EngineCall, Moment
from moments_app.models.moment import CHAIN_ORDER, EPISODE_FIELDS, MomentQuerySet
from moments_app.moments.partition import delete_moment
from moments_app.operator.person_pages import AsOf
from moments_app.operator.transcript import entries
from sessions_app.admin.access_log import people_of
from sessions_app.admin.base import DaysFilter, ExactFilter, PageAdmin, TagFilter, UserFilter, matching_any
from sessions_app.admin.links import MAX_CHIPS, link_column, list_url, name_with_gist
from sessions_app.admin.views import FormPage, OperatorPage, OperatorView, RowView, actor_of, first_of, may_see
from sessions_app.models import Message, UserProfile

LATER = 8  # moments after the open one
EARLIER = 16  # moments before the open one
PAGE = 25
GAP = timedelta(hours=1)
HUES = 8  # number of session colors in tokens.css
SOURCE_TURNS = 200
CALLS_SHOWN = 5
CORRECTIONS_SHOWN = 10


@dataclass(frozen=True)
class Step:
    """A row of the timeline.

    Args:
        begins_session: whether the row is the first one shown, or the row above has another session.
        gap: the time between this moment and the one below; blank if it is short.
    """

    moment: Moment
    is_open: bool
    begins_session: bool
    gap: str

    @property
    def hue(self) -> int:
        return (self.moment.source_session_id or 0) % HUES


@dataclass(frozen=True)
class TimelineSection:
    """A section of a person's timeline, newest moments first.

    Args:
        moments: the shown moments, plus one more at each end if the timeline continues there.
        first, end: the shown moments are `moments[first:end]`.
    """

    moments: Sequence[Moment]
    first: int
    end: int
    opened: Moment | None = None

    @property
    def steps(self) -> list[Step]:
        return [self._step(position) for position in range(self.first, self.end)]

    @property
    def later(self) -> Moment | None:
        """The first shown moment if there are later ones, otherwise None."""
        return self.moments[self.first] if 0 < self.first < self.end else None

    @property
    def earlier(self) -> Moment | None:
        """The last shown moment if there are earlier ones, otherwise None."""
        return self.moments[self.end - 1] if self.first < self.end < len(self.moments) else None

    @property
    def linked_from(self) -> list[Moment]:
        """The moments that link to the open one, in the order of the chain."""
        key = self.opened.key if self.opened else None
        return [moment for moment in reversed(self.moments) if key in moment.previous_moment_keys]

    @property
    def next(self) -> Moment | None:
        return self._neighbor(-1)

    @property
    def previous(self) -> Moment | None:
        return self._neighbor(1)

    def _neighbor(self, distance: int) -> Moment | None:
        if self.opened is None:
            return None
        position = self.moments.index(self.opened) + distance
        return self.moments[position] if 0 <= position < len(self.moments) else None

    def _step(self, position: int) -> Step:
        moment = self.moments[position]
        above = self.moments[position - 1] if position > self.first else None
        below = self.moments[position + 1] if position + 1 < len(self.moments) else None
        return Step(
            moment=moment,
            is_open=moment == self.opened,
            begins_session=above is None or above.source_session_id != moment.source_session_id,
            gap=_gap(below, moment) if below else "",
        )


def around(moment: Moment, until: datetime | None = None) -> TimelineSection:
    """Return the section around a moment, with this moment open. Leave out later moments that end after `until`."""
    later = list(_until(until).later_than(moment)[: LATER + 1])
    earlier = list(_shown().earlier_than(moment)[: EARLIER + 1])
    chain = [*reversed(later), moment, *earlier]
    return TimelineSection(chain, max(len(later) - LATER, 0), len(chain) - max(len(earlier) - EARLIER, 0), moment)


def earlier_than(moment: Moment, until: datetime | None = None) -> TimelineSection:
    chain = [moment, *_shown().earlier_than(moment)[: PAGE + 1]]
    return TimelineSection(chain, 1, min(len(chain), PAGE + 1))


def later_than(moment: Moment, until: datetime | None = None) -> TimelineSection:
    later = list(_until(until).later_than(moment)[: PAGE + 1])
    return TimelineSection([*reversed(later), moment], max(len(later) - PAGE, 0), len(later))


def _shown() -> MomentQuerySet:
    return Moment.objects.select_related("source_session").defer("search_vector", "detail")


def _until(until: datetime | None) -> MomentQuerySet:
    return _shown().filter(ends_at__lte=until) if until else _shown()


def _gap(below: Moment, moment: Moment) -> str:
    is_long = moment.starts_at - below.ends_at >= GAP
    return timesince(below.ends_at, moment.starts_at) if is_long else ""


SECTIONS = {"at": around, "before": earlier_than, "after": later_than}  # keyed by the parameter in the URL


class MomentForm(FormPage[Moment]):
    """The page of a moment: its neighbors, its source turns, and the job that created it."""

    before, after = "operator/moments/neighbors.html", "operator/moments/source.html"

    def context(self) -> dict[str, Any]:
        moment = self.row
        calls = EngineCall.objects.filter(job=moment.job_id or 0).order_by("-id")
        corrections = LogEntry.objects.filter(
            content_type=ContentType.objects.get_for_model(Moment), object_id=str(moment.pk)
        )
        return reading_context(self, moment) | {
            "is_fullwidth": "1",
            "next_moment": Moment.objects.later_than(moment).first(),
            "calls": self.visible(calls)[:CALLS_SHOWN],
            "corrections": corrections.select_related("user")[:CORRECTIONS_SHOWN],
        }


class MomentReading(RowView[Moment]):
    """A moment next to its source turns, to open within the timeline."""

    route, name = "<int:pk>/reading/", "reading"

    def get(self, request: HttpRequest, **kwargs: Any) -> HttpResponse:
        section = around(self.row, AsOf.of(request).time)
        shown = reading_context(self, self.row) | {"section": section}
        return render(request, "operator/moments/reading.html", shown)


class Timeline(OperatorPage):
    """A person's moments as a timeline, around the requested moment or the newest."""

    route, name = "chain/<int:user_pk>/", "chain"
    template_name = "operator/moments/chain.html"

    @cached_property
    def person(self) -> UserProfile:
        return get_object_or_404(UserProfile, pk=self.kwargs["user_pk"])

    def get_title(self) -> str:
        return f"Moments of {self.person}"

    def context(self) -> dict[str, Any]:
        as_of = AsOf.of(self.request)
        moments = self.admin.get_queryset(self.request).for_user(self.person).newest_first()
        if as_of.time:
            moments = moments.filter(ends_at__lte=as_of.time)
        newest, oldest = moments.first(), moments.last()
        section = self._requested_section(moments, as_of.time) or (around(newest, as_of.time) if newest else None)
        shown = {"person": self.person, "newest": newest, "oldest": oldest, "section": section, "as_of": as_of}
        return shown | (reading_context(self, section.opened) if section and section.opened else {})

    def people(self) -> Collection[int]:
        return people_of(self.person)

    def _requested_section(self, moments: MomentQuerySet, until: datetime | None) -> TimelineSection | None:
        for name, section in SECTIONS.items():
            pk = self.number(name)
            if pk is not None and (moment := moments.filter(pk=pk).first()):
                return section(moment, until)
        return None


def reading_context(view: OperatorView, moment: Moment) -> dict[str, Any]:
    """Return the template context for a moment, with previous moments and the source turns visible to the operator."""
    own = Moment.objects.filter(user_id=moment.user_id, key__in=moment.previous_moment_keys)
    named = {previous.key: previous for previous in own}
    turns = view.visible(Message.objects.filter(user_id=moment.user_id, moment=moment).in_order())
    shown, more = first_of(turns, SOURCE_TURNS)
    return {
        "moment": moment,
        "previous_moments": [named[key] for key in moment.previous_moment_keys if key in named],
        "entries": entries(view.request, shown),
        "sees_turns": may_see(view.request, Message),
        "has_more_turns": more is not None,
    }


class CategoryFilter(ExactFilter):
    title, parameter_name, lookup = "category", "category", "category"


class TopicFilter(TagFilter):
    title, parameter_name, lookup = "topic", "topic", "topic_tags__contains"


class EmotionFilter(TagFilter):
    title, parameter_name, lookup = "emotion", "emotion", "emotion_tags__contains"


@admin.register(Moment)
class MomentAdmin(PageAdmin):
    """Moments, which operators can search and correct."""

    list_display = ("gist", "topics", "period", "user_link", "session_link", "engine")
    session_link = link_column("source_session", "Session")
    list_filter = (UserFilter, TopicFilter, EmotionFilter, CategoryFilter, ("starts_at", DaysFilter))
    search_fields = ("key",)
    open_lookups = ("user__id__exact",)
    search_help_text = "Words from the name, summary or detail, or the start of a key or user_id"
    ordering = ("-starts_at", "-id")
    when_empty = (
        "No moments yet. Jobs write them from older turns. To write them now, press Build moments in a session."
    )
    may_add = False
    form_page = MomentForm
    views = (Timeline, MomentReading)
    delete_confirmation_template = "operator/moments/delete.html"
    fields = (*EPISODE_FIELDS, "category")

    class Media:
        js = ("operator/walk.js",)

    def get_queryset(self, request: HttpRequest) -> MomentQuerySet:
        queryset: MomentQuerySet = super().get_queryset(request)
        named = queryset.select_related("user", "source_session", "job", "prompt_version__resource")
        return named.defer("search_vector")

    def get_ordering(self, request: HttpRequest) -> Sequence[str]:
        """Sort by time. For one person, use the order of the chain, which has an index."""
        is_of_one = any(request.GET.get(name) for name in (UserFilter.parameter_name, "user__id__exact"))
        return CHAIN_ORDER if is_of_one else self.ordering

    def search(self, request: HttpRequest, rows: QuerySet[Moment], term: str) -> QuerySet[Moment]:
        by_words = rows.filter(pk__in=Moment.objects.matching(term).values("pk"))
        return matching_any(
            rows, by_words, rows.filter(key__startswith=term), rows.filter(user__user_id__startswith=term)
        )

    def delete_model(self, request: HttpRequest, obj: Moment) -> None:
        delete_moment(obj, actor=actor_of(request))

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Moment]) -> None:
        for moment in queryset:  # one by one, because each deletion closes the gap in the chain
            self.delete_model(request, moment)

    @admin.display(description="Moment", ordering="key")
    def gist(self, moment: Moment) -> SafeString:
        return name_with_gist(moment.key, moment.summary)

    @admin.display(description="Topics")
    def topics(self, moment: Moment) -> SafeString:
        tags = ((list_url(Moment, topic=tag), tag) for tag in moment.topic_tags[:MAX_CHIPS])
        links = format_html_join(" ", '<a class="rem-tag" href="{}">{}</a>', tags)
        return format_html('<span class="rem-tags">{}</span>', links)

    @admin.display(description="When", ordering="starts_at")
    def period(self, moment: Moment) -> SafeString:
        return format_html('<span class="rem-nowrap">{}</span>', moment.period)
