"""The rolling summary and the digest of a session over REST."""

from typing import Any

from rest_framework import serializers
from rest_framework.response import Response

from moments_app.interfaces.api.jobs import Accepted, accepted
from moments_app.models import Job, Summary
from moments_app.sessions.digest import DigestSession
from sessions_app.api.pages import PageAnswer, PageQuery
from sessions_app.api.person import PersonQuery
from sessions_app.api.person_view import PersonView, operation
from sessions_app.api.sessions import session_or_404


class SummaryFact(serializers.Serializer[Any]):
    """One thing a summary holds, and the turns that say it."""

    fact = serializers.CharField()
    message_indexes = serializers.ListField(child=serializers.IntegerField(), help_text="Sequences.")


class SummaryRow(serializers.ModelSerializer[Summary]):
    """One version of a session's rolling summary."""

    facts = SummaryFact(many=True)
    source_sequences = serializers.ListField(
        child=serializers.IntegerField(), help_text="Of the turns it was made of that are still there."
    )
    base_end_sequence = serializers.IntegerField(
        source="base.end_sequence",
        default=None,
        allow_null=True,
        help_text="Of the version it carries on; null for the first.",
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


class SummaryList(PageAnswer):
    """A page of versions."""

    summaries = SummaryRow(many=True)


class SummariesView(PersonView):
    """The rolling summary of a session, all its versions."""

    @operation(SummaryList, query=PageQuery)
    def get(self, session_id: str) -> Response:
        """Versions of a session's rolling summary, newest first; `completed` ones form a chain."""
        versions = Summary.objects.for_session(session_or_404(self.person, session_id)).newest_first()
        return self.page(SummaryList, versions.select_related("base").with_source_sequences())


class CompactView(PersonView):
    """A digest of a session on demand."""

    @operation({202: Accepted}, body=PersonQuery, operation_id="sessions_compact")
    def post(self, session_id: str) -> Response:
        """Asks for a digest of the whole live window: the next load begins with it."""
        session = session_or_404(self.person, session_id)
        return accepted(Job.objects.request(DigestSession.name, session, requested_by=self.actor, force=True))
