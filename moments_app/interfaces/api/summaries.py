"""The rolling summary and the digest of a session over REST."""

from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from moments_app.interfaces.api.jobs import Accepted, accepted
from moments_app.models import Job, Summary
from moments_app.models.summary import SummaryQuerySet
from moments_app.sessions.digest import DigestSession
from sessions_app.api.viewsets import PersonViewSet, session_or_404
from sessions_app.models import Session


class SummaryFact(serializers.Serializer[Any]):
    """A fact of a summary and its source turns."""

    fact = serializers.CharField()
    message_indexes = serializers.ListField(
        child=serializers.IntegerField(), help_text="Sequence numbers of the source turns."
    )


class SummaryRow(serializers.ModelSerializer[Summary]):
    """A version of a session's rolling summary."""

    facts = SummaryFact(many=True)
    source_sequences = serializers.ListField(
        child=serializers.IntegerField(), help_text="Sequence numbers of the source turns, except deleted turns."
    )
    base_end_sequence = serializers.IntegerField(
        source="base.end_sequence",
        default=None,
        allow_null=True,
        help_text="The `end_sequence` of the previous completed version. Null for the first version.",
    )

    class Meta:
        model = Summary
        fields = (
            "status",
            "start_sequence",
            "end_sequence",
            "base_end_sequence",
            "text",
            "facts",
            "source_sequences",
            "engine",
            "generation_time_ms",
            "error",
            "created_at",
            "completed_at",
        )


@extend_schema_view(
    list=extend_schema(
        description="Return the versions of a session's rolling summary, newest first. Each completed version "
        "continues the previous completed version."
    )
)
class SummaryViewSet(ListModelMixin, PersonViewSet[Summary]):
    """The rolling summary of a session, all its versions."""

    serializer_class = SummaryRow

    def get_queryset(self) -> SummaryQuerySet:
        session = session_or_404(self.person, self.kwargs["session_id"])
        return Summary.objects.for_session(session).newest_first().select_related("base").with_source_sequences()


class CompactViewSet(PersonViewSet[Session]):
    """A digest of a session on demand."""

    lookup_field = "session_id"
    lookup_value_converter = "public_id"
    answers = {"compact": {202: Accepted}}

    @action(detail=True, methods=["post"])
    def compact(self, request: Request, session_id: str) -> Response:
        """Queue a compaction of the session. Then `view=live` starts with a summary instead of the live turns."""
        session = session_or_404(self.person, session_id)
        return accepted(Job.objects.request(DigestSession.name, session, requested_by=self.actor, force=True))
