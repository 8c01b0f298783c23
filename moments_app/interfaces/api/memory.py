"""Contexts and searches over REST."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from moments_app.context.assemble import PLANS, ContextRequest, Envelope, note_accesses, serve_context
from moments_app.context.budget import BudgetTooSmall
from moments_app.context.layers import LAYERS, default_layers
from moments_app.context.render import FORMATS, PricedItem
from moments_app.interfaces.api.facts import AboutField
from moments_app.recall.query import RETRIEVAL, with_names, with_relevances, with_vector
from moments_app.recall.request import KINDS, MODES, RecallRequest
from moments_app.recall.results import Result
from moments_app.recall.search import MATCH_COUNT, recall_with_span
from moments_app.turns.platform_text import note_served
from sessions_app.api.fields import (
    CONTRADICTORY,
    AsOfField,
    AwareDateTimeField,
    BooleanField,
    IntegerField,
    PersonQuery,
    PublicIdField,
    TextField,
    WordsField,
    is_text,
)
from sessions_app.api.viewsets import PersonViewSet
from sessions_app.lexemes import QUERY_MAX_CHARS
from sessions_app.models.session import DEFAULT_AGENT
from sessions_app.row_security import acting_for
from sessions_app.text.invisible_characters import without_invisible

MATCH_COUNT_MAX = 100


class LayersField(serializers.ListField):
    """A list of layer names. The choices are read when a field is created, because apps may add layers later."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=serializers.ChoiceField(choices=list(LAYERS)), default=default_layers(), **kwargs)


class ContextInput(PersonQuery):
    """The subject and the size of a context."""

    session_id = PublicIdField(
        help_text="The session to build the context for. The session doesn't have to exist yet. The name "
        "`chat_id` is also accepted."
    )
    agent_id = PublicIdField(
        default=DEFAULT_AGENT,
        help_text="Agent of a new session. An existing session keeps its agent.",
    )
    query = TextField(
        max_length=QUERY_MAX_CHARS,
        allow_blank=True,
        default="",
        help_text="The message that the model should answer next.",
    )
    max_tokens = IntegerField(
        min_value=1,
        max_value=1_000_000_000,
        required=False,
        help_text="Maximum number of tokens in the context. MEMORY_CONTEXT__MAX_TOKENS is the default and "
        "the upper limit.",
    )
    format = serializers.ChoiceField(choices=sorted(FORMATS), default="xml")
    layers = LayersField(
        help_text="The layers to include. In a query string, separate the layers with commas.",
    )
    refresh = BooleanField(default=False, help_text="Rebuild the cached parts of the context.")
    retrieval = serializers.ChoiceField(
        choices=RETRIEVAL,
        default="query",
        help_text="`query`: search memory for the query. `relevant`: likewise, but return no results if none of them "
        "fits the query. `auto`: an engine turns the query into a search. `off`: don't search.",
    )
    plan = serializers.ChoiceField(
        choices=PLANS,
        default="query",
        help_text="`query`: search results get at least half of the budget. `stable`: memory is not "
        "searched. The text stays the same until memory changes, so model providers can cache the"
        " prompt.",
    )

    as_of = AsOfField(
        required=False,
        help_text="Return memory as it was at this time. A date means the end of that day.",
    )

    def to_internal_value(self, data: Any) -> Any:
        """Split `layers` at commas if it is a query parameter. Use `chat_id` as `session_id`.

        Raises:
            ValidationError: `chat_id` and `session_id` are different.
        """
        if isinstance(data, Mapping):
            data = dict(data)
            if isinstance(data.get("layers"), str):
                data["layers"] = data["layers"].split(",") if data["layers"] or not is_text(self) else []
            if "chat_id" in data and data.setdefault("session_id", data["chat_id"]) != data.pop("chat_id"):
                raise serializers.ValidationError(
                    {"session_id": "Send session_id or chat_id, not two different ones."}, CONTRADICTORY
                )
        return super().to_internal_value(data)


class ContextItem(serializers.Serializer[Any]):
    """A line of memory and its source."""

    text = serializers.CharField()
    tokens = serializers.IntegerField()
    ref = serializers.CharField()
    sequence_range = serializers.ListField(child=serializers.IntegerField(), allow_null=True)
    time = serializers.DateTimeField(allow_null=True)
    role = serializers.CharField(required=False, help_text="Role of the speaker, if the line is a turn.")


class ContextLayer(serializers.Serializer[Any]):
    """One layer."""

    name = serializers.CharField()
    tokens = serializers.IntegerField()
    items = ContextItem(many=True)


class ContextBudget(serializers.Serializer[Any]):
    """Token counts."""

    requested = serializers.IntegerField(allow_null=True)
    applied = serializers.IntegerField()
    estimated_used = serializers.IntegerField()


class ContextTrimmed(serializers.Serializer[Any]):
    """Items left out because of the budget."""

    layer = serializers.CharField()
    count = serializers.IntegerField()
    tokens = serializers.IntegerField()
    reason = serializers.CharField()


class ContextAnswer(serializers.Serializer[Any]):
    """A context with its sources and sizes."""

    context_id = serializers.UUIDField()
    budget = ContextBudget()
    sources = serializers.DictField(
        child=serializers.IntegerField(), help_text="Number of items in each layer of the context."
    )
    trimmed = ContextTrimmed(many=True)
    layers = ContextLayer(many=True)
    has_partition_event = serializers.BooleanField()
    cached = serializers.BooleanField()
    degraded = serializers.BooleanField()
    context = serializers.JSONField(  # type: ignore[assignment]  # a field of that name hides one of the base's
        help_text="The context: a text, or a list of messages if the format is `messages`. Blank if the format is "
        "`json`."
    )


class ContextViewSet(PersonViewSet[Any]):
    serializer_class = ContextAnswer
    inputs = {"read": ContextInput, "read_long": ContextInput}
    refuses = {"read": [BudgetTooSmall], "read_long": [BudgetTooSmall]}
    scopes = {"read_long": "read"}
    own_transaction = ("read", "read_long")

    @extend_schema(operation_id="context_get")
    def read(self, request: Request) -> Response:
        """Return memory for the next model call, within a token budget. Each line has its address."""
        return Response(served_context(self.user_id(), self.validated_data, application=self.application))

    @extend_schema(operation_id="context_post")
    def read_long(self, request: Request) -> Response:
        """Return a context, like `GET`. Use it for queries that are too long for a URL."""
        return self.read(request)


def served_context(user_id: str | None, values: dict[str, Any], *, application: int) -> dict[str, Any]:
    """Build a context, store its receipt, and return the context as serialized by `ContextAnswer`.

    Args:
        user_id: None for an unknown person.
        values: validated by `ContextInput`.

    Raises:
        NotFound: the key may not see the person.
        BudgetTooSmall: policy and query alone exceed the budget.
    """
    wanted = ContextRequest(
        query=values["query"],
        max_tokens=values.get("max_tokens"),
        format=values["format"],
        layers=values["layers"],
        as_of=values.get("as_of"),
        refresh=values["refresh"],
        plan=values["plan"],
        new_agent_id=values["agent_id"],
    )
    envelope = serve_context(
        user_id, values["session_id"], wanted, application=application, retrieval=values["retrieval"]
    )
    if envelope is None:
        raise NotFound
    return context_data(envelope)


def context_data(envelope: Envelope) -> dict[str, Any]:
    filled = envelope.filled
    counts = {name: len(lines) for name, lines in filled.layers.items()}
    return {
        "context_id": envelope.context_id,
        "budget": {
            "requested": envelope.request.max_tokens,
            "applied": envelope.request.applied,
            "estimated_used": filled.tokens,
        },
        "sources": {
            "hot_turns": counts.get("hot_turns", 0),
            "summaries": counts.get("summary", 0),
            "entities": counts.get("entities", 0),
            "moments": counts.get("moments", 0),
            "streams": sum(counts.get(name, 0) for name in ("collective", "conversation")),
            "retrieved": counts.get("retrieved", 0),
        },
        "trimmed": [vars(part) for part in envelope.trimmed],
        "layers": [
            {"name": name, "tokens": filled.tokens_of(name), "items": [_item_data(line) for line in lines]}
            for name, lines in filled.layers.items()
        ],
        "has_partition_event": envelope.has_partition_event,
        "cached": envelope.cached,
        "degraded": bool(envelope.request.recall and envelope.request.recall.degraded),
        "context": envelope.context,
    }


def _item_data(line: PricedItem) -> dict[str, Any]:
    item = line.item
    return {
        "text": item.text,
        "tokens": line.tokens,
        "ref": item.ref,
        "sequence_range": item.source_sequences,
        "time": item.time,
        **({"role": item.role} if item.role else {}),
    }


# --- search ---


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
        user_id: None for an unknown person.
        values: validated by `SearchInput`.
    """
    since, until = values.get("since"), values.get("until")
    request = RecallRequest(
        with_names(values["query"], user_id, application=application),
        list(dict.fromkeys(values["kinds"])),
        since,
        values["mode"],
        as_of=values.get("as_of"),
        until=until,
        about=values.get("about", ""),
    )
    agent_id = values.get("agent_id", "")
    request = with_relevances(with_vector(request), user_id, application=application, agent_id=agent_id)
    with acting_for(user_id, application=application) as user:
        limit = values.get("match_count") or MATCH_COUNT
        results, span = recall_with_span(user, agent_id, request, most=limit) if user else ([], None)
    for result in results:
        result.content = without_invisible(result.content)
    if user:
        turns = [result.content for result in results if result.kind == "turn"]
        note_served(user, [result.content for result in results], turns)
    note_accesses(result.ref for result in results)
    if span:
        since, until = span.since, span.until
    return {
        "results": [_result_data(result) for result in results],
        "span": {"since": _utc(since), "until": _utc(until)} if since or until else None,
        "mode": request.used_mode,
        "degraded": request.degraded,
    }


def _result_data(result: Result) -> dict[str, Any]:
    # Not serialized with `SearchResult`, because that takes a hundred times as long.
    return {
        "kind": result.kind,
        "ref": result.ref,
        "content": result.content,
        "session_id": result.session_id,
        "sequence": result.sequence,
        "role": result.role,
        "time": _utc(result.time),
        "valid_from": _utc(result.valid_from),
        "valid_until": _utc(result.valid_until),
        "score": result.score,
        "ranks": {search: result.ranks.get(search) for search in ("semantic", "text")},
    }


def _utc(time: datetime | None) -> str | None:
    return time.isoformat().replace("+00:00", "Z") if time else None
