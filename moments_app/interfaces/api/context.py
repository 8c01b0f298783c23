"""The context over REST."""

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from moments_app.context.assemble import PLANS, ContextRequest, Envelope, serve_context
from moments_app.context.budget import BudgetTooSmall
from moments_app.context.item import PricedItem
from moments_app.context.layers import LAYERS, default_layers
from moments_app.context.render import FORMATS
from moments_app.recall.query import RETRIEVAL
from sessions_app.api.fields import (
    CONTRADICTORY,
    AsOfField,
    BooleanField,
    IntegerField,
    PublicIdField,
    TextField,
    is_text,
)
from sessions_app.api.permissions import PersonQuery
from sessions_app.api.viewsets import PersonViewSet
from sessions_app.lexemes import QUERY_MAX_CHARS
from sessions_app.models.session import DEFAULT_AGENT


class LayersField(serializers.ListField):
    """A list of names of layers. The choices are read per serializer, because apps may add layers after import."""

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
    """The memory that a model should have before it answers."""

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
        user_id: the person; None for an unknown person.
        values: validated by `ContextInput`.
        application: primary key of the person's application.

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
