"""The lines of a person's profile over REST."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.mixins import ListModelMixin

from moments_app.models import ProfileLine
from moments_app.models.profile_line import ProfileLineQuerySet
from sessions_app.api.fields import BooleanField
from sessions_app.api.pagination import PageQuery
from sessions_app.api.viewsets import PersonViewSet
from sessions_app.models import Message


class LinesQuery(PageQuery):
    """Which lines."""

    ended = BooleanField(default=False, help_text="Return earlier lines instead, latest first.")


class LineSource(serializers.Serializer[Any]):
    """A source turn of a line."""

    session_id = serializers.CharField()
    sequence = serializers.IntegerField()


class LineRow(serializers.ModelSerializer[ProfileLine]):
    """A line of a profile."""

    sources = LineSource(
        many=True, help_text="Source turns that still exist. Empty if they are unknown or the line was written by hand."
    )
    end_reason = serializers.CharField(help_text="Why the line ended: changed, ended, by hand. Blank if it is current.")
    replaced_by = serializers.UUIDField(
        source="replaced_by.line_id", default=None, allow_null=True, help_text="The line that replaced it."
    )

    class Meta:
        model = ProfileLine
        fields = (
            "line_id",
            "heading",
            "text",
            "sources",
            "is_pinned",
            "engine",
            "created_at",
            "ended_at",
            "end_reason",
            "replaced_by",
        )


@extend_schema_view(
    list=extend_schema(description="Return the lines of a profile's summary in order, each with its source turns.")
)
class ProfileLineViewSet(ListModelMixin, PersonViewSet[ProfileLine]):
    """The lines of a profile."""

    serializer_class = LineRow
    inputs = {"list": LinesQuery}

    def get_queryset(self) -> ProfileLineQuerySet:
        """Return the current lines of the person's profile, or the ended ones."""
        lines = ProfileLine.objects.filter(user=self.found_person).select_related("replaced_by")
        if self.validated_data["ended"]:
            return lines.exclude(ended_at=None).order_by("-ended_at", "-pk")
        return lines.standing().in_order()

    def paginate_queryset(self, queryset: Any) -> Any:
        """Return the lines of a page with their sources, which one statement reads."""
        lines = list(super().paginate_queryset(queryset) or ())
        name_sources(lines)
        return lines


def name_sources(lines: Iterable[ProfileLine]) -> None:
    """Give lines of a person their `sources`."""
    named: dict[int, list[Any]] = defaultdict(list)
    for line in lines:
        line.sources = []  # type: ignore[attr-defined]
        for pk in line.source_message_ids:
            named[pk].append(line)
    turns = Message.objects.filter(pk__in=named, user__in={line.user_id for line in lines})
    for pk, session_id, sequence in turns.order_by("pk").values_list("pk", "session__session_id", "sequence"):
        for line in named[pk]:
            line.sources.append({"session_id": session_id, "sequence": sequence})
