"""The list of moments, and the form to correct a moment."""

from collections.abc import Sequence

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.paginator import InfinitePaginator

from moments_app.models import Moment
from moments_app.models.moment import CHAIN_ORDER, MomentQuerySet
from moments_app.moments.delete import delete_moment
from moments_app.operator.admin.filters import ExactFilter, TagFilter, UserFilter
from moments_app.operator.views.moment import Chain, MomentForm, MomentReading
from sessions_app.admin.base import DaysFilter, PageAdmin, found_by
from sessions_app.admin.links import CHIPS, link_to, list_url, titled
from sessions_app.admin.views.base import actor_of


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
