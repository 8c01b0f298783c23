"""Searching memory over REST."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from moments_app.context import served
from moments_app.interfaces.api import serializers as shapes
from moments_app.recall import accesses
from moments_app.recall.query_vector import with_vector
from moments_app.recall.request import RecallRequest
from moments_app.recall.search import recall
from sessions_app.api.person import user_id_of
from sessions_app.api.requests import parsed
from sessions_app.row_security import acting_for


class SearchView(APIView):
    """What of a person's memory answers a query."""

    scopes = {"POST": "read"}

    @extend_schema(request=shapes.SearchInput, responses=shapes.SearchAnswer)
    def post(self, request: Request) -> Response:
        """Facts, moments and turns, best first, each with its address."""
        asked = parsed(shapes.SearchInput, request.data).validated_data
        return Response(found(user_id_of(request, asked.get("user_id")), asked))


def found(user_id: str | None, asked: dict[str, Any]) -> dict[str, Any]:
    """What a valid request finds, as answered.

    Args:
        user_id: whose memory is searched; None for nobody.
        asked: of `SearchInput`.
    """
    question = with_vector(
        RecallRequest(asked["query"], list(dict.fromkeys(asked["kinds"])), asked.get("since"), asked["mode"])
    )
    with acting_for(user_id) as user:
        most = asked.get("match_count")
        results = recall(user, asked.get("agent_id", ""), question, most=most) if user else []
    if user:
        served.note_results(user, results)
    accesses.note(result.ref for result in results)
    answer = {"results": results, "mode": question.used_mode, "degraded": question.degraded}
    return dict(shapes.SearchAnswer(answer).data)
