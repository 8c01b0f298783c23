"""Searching memory over REST."""

from datetime import datetime
from typing import Any

from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from moments_app.context import receipts
from moments_app.interfaces.api.facts import AboutField
from moments_app.recall.query import with_relevances, with_vector
from moments_app.recall.request import KINDS, MODES, RecallRequest
from moments_app.recall.results import Result
from moments_app.recall.said_in import recall_with_span
from moments_app.recall.search import MATCH_COUNT
from sessions_app.api.fields import AsOfField, AwareDateTimeField, IntegerField, PublicIdField, WordsField
from sessions_app.api.permissions import PersonQuery
from sessions_app.api.viewsets import PersonViewSet
from sessions_app.lexemes import QUERY_MAX_CHARS
from sessions_app.row_security import acting_for
from sessions_app.text.invisible_characters import without_invisible

MATCH_COUNT_MAX = 100


class SearchInput(PersonQuery):
    """A search."""

    agent_id = PublicIdField(
        required=False, help_text="The agent whose shards are also searched. Default: the shards of every agent."
    )
    query = WordsField(max_length=QUERY_MAX_CHARS)
    kinds = serializers.ListField(
        child=serializers.ChoiceField(choices=KINDS),
        default=list(KINDS),
        min_length=1,
        help_text="Kinds of results to return. Default: all kinds.",
    )
    match_count = IntegerField(
        min_value=1, max_value=MATCH_COUNT_MAX, required=False, help_text="Maximum number of results. Default: 5."
    )
    mode = serializers.ChoiceField(
        choices=MODES,
        default="hybrid",
        help_text="`text`: search by words. `semantic`: search by meaning. `hybrid`: search by both.",
    )
    about = AboutField()
    since = AwareDateTimeField(required=False, help_text="Return only results from this time or later.")
    until = AwareDateTimeField(required=False, help_text="Return only results from before this time.")
    as_of = AsOfField(
        required=False,
        help_text="Search memory as it was at this time: text from before this time, and facts that were believed "
        "then. A date means the end of that day.",
    )


class SearchRanks(serializers.Serializer[Any]):
    """The rank in each search, from 1. Null if that search didn't find it."""

    semantic = serializers.IntegerField(default=None, allow_null=True)
    text = serializers.IntegerField(default=None, allow_null=True)


class SearchResult(serializers.Serializer[Any]):
    """A search result."""

    kind = serializers.ChoiceField(choices=KINDS)
    ref = serializers.CharField()
    content = serializers.CharField(help_text="Text of the result. Long texts are shortened.")
    session_id = serializers.CharField(allow_null=True)
    sequence = serializers.IntegerField(
        allow_null=True,
        help_text="Sequence number of the turn, or of a moment's first turn.",
    )
    role = serializers.CharField(help_text="Role of the speaker. Blank if the result is not a turn.")
    time = serializers.DateTimeField()
    valid_from = serializers.DateTimeField(
        allow_null=True, help_text="When the fact became true. Null if unknown, or if the result is not a fact."
    )
    valid_until = serializers.DateTimeField(
        allow_null=True,
        help_text="The fact is true until this time. Null if no end is known, or if the result is not a fact.",
    )
    score = serializers.FloatField()
    ranks = SearchRanks()


class SearchSpan(serializers.Serializer[Any]):
    """A period of time. It includes its start, but not its end."""

    since = serializers.DateTimeField(allow_null=True)
    until = serializers.DateTimeField(allow_null=True)


class SearchAnswer(serializers.Serializer[Any]):
    """Search results, best first."""

    results = SearchResult(many=True)
    span = SearchSpan(
        allow_null=True,
        help_text="The period from the request's `since` to its `until`. If the request has neither: the period "
        "named in the query, in the person's time zone. If the query names a period, results from this period come "
        "first. Null if there is no period.",
    )
    mode = serializers.ChoiceField(choices=MODES, help_text="The search mode that was used.")
    degraded = serializers.BooleanField(
        help_text="True if a search by meaning was requested, but only words were searched."
    )


class SearchViewSet(PersonViewSet[Any]):
    """A search of a person's memory."""

    inputs = {"search": SearchInput}
    answers = {"search": SearchAnswer}
    scopes = {"search": "read"}
    own_transaction = ("search",)

    @action(detail=False, methods=["post"])
    def search(self, request: Request) -> Response:
        """Search facts, moments and turns. Returns the best results first, each with its address."""
        return Response(search_data(self.user_id(), self.validated_data, application=self.application))


def search_data(user_id: str | None, values: dict[str, Any], *, application: int) -> dict[str, Any]:
    """Search a person's memory, and return the results as serialized by `SearchAnswer`.

    Args:
        user_id: the person; None for an unknown person.
        values: validated by `SearchInput`.
        application: primary key of the person's application.
    """
    kinds = list(dict.fromkeys(values["kinds"]))
    since, until = values.get("since"), values.get("until")
    asked = RecallRequest(
        values["query"],
        kinds,
        since,
        values["mode"],
        as_of=values.get("as_of"),
        until=until,
        about=values.get("about", ""),
    )
    agent_id = values.get("agent_id", "")
    question = with_relevances(with_vector(asked), user_id, application=application, agent_id=agent_id)
    with acting_for(user_id, application=application) as user:
        most = values.get("match_count") or MATCH_COUNT
        found, span = recall_with_span(user, agent_id, question, most=most) if user else ([], None)
    for result in found:
        result.content = without_invisible(result.content)
    if user:
        receipts.note_results(user, found)
    receipts.note_accesses(result.ref for result in found)
    shown = [_result_data(result) for result in found]
    named = {"since": _written(since), "until": _written(until)} if since or until else None
    if span:
        named = {"since": _written(span.since), "until": _written(span.until)}
    return {"results": shown, "span": named, "mode": question.used_mode, "degraded": question.degraded}


def _result_data(result: Result) -> dict[str, Any]:
    return {
        "kind": result.kind,
        "ref": result.ref,
        "content": result.content,
        "session_id": result.session_id,
        "sequence": result.sequence,
        "role": result.role,
        "time": _written(result.time),
        "valid_from": _written(result.valid_from),
        "valid_until": _written(result.valid_until),
        "score": result.score,
        "ranks": {search: result.ranks.get(search) for search in ("semantic", "text")},
    }


def _written(time: datetime | None) -> str | None:
    return time.isoformat().replace("+00:00", "Z") if time else None
