"""The lines of a person's profile over REST."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from rest_framework import serializers
from rest_framework.response import Response

from moments_app.models import ProfileLine
from sessions_app.api.fields import BooleanField
from sessions_app.api.pages import PageAnswer, PageQuery
from sessions_app.api.person_view import PersonView, operation
from sessions_app.models import Message


class LinesQuery(PageQuery):
    """Which lines."""

    ended = BooleanField(default=False, help_text="Those that stood there before, the latest first.")


class LineSource(serializers.Serializer[Any]):
    """A turn that a line comes from."""

    session_id = serializers.CharField()
    sequence = serializers.IntegerField()


class LineRow(serializers.ModelSerializer[ProfileLine]):
    """A line of a profile."""

    sources = LineSource(many=True, help_text="Turns that are still there; none where it isn't known, or by hand.")
    end_reason = serializers.CharField(help_text="changed, ended, by hand; blank while it stands.")
    replaced_by = serializers.UUIDField(
        source="replaced_by.line_id", default=None, allow_null=True, help_text="The line that took its place."
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


class LineList(PageAnswer):
    """A page of lines."""

    lines = LineRow(many=True)

    def to_representation(self, instance: Any) -> Any:
        """Give each line its sources: one statement for the page."""
        instance = instance | {"lines": list(instance["lines"])}
        name_sources(instance["lines"])
        return super().to_representation(instance)


class ProfileLinesView(PersonView):
    """The lines of a profile."""

    @operation(LineList, query=LinesQuery)
    def get(self, user_id: str) -> Response:
        """The lines that a profile's summary is made of, in their order, each with the turns that it comes from."""
        lines = ProfileLine.objects.filter(user=self.found_person).select_related("replaced_by")
        ended = lines.exclude(ended_at=None).order_by("-ended_at", "-pk")
        return self.page(LineList, ended if self.query["ended"] else lines.standing().in_order())


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
