"""The shapes of the memory's requests and answers."""

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from moments_app.context.assemble import Envelope
from moments_app.context.layers import DEFAULT, ORDER
from moments_app.context.priced import PricedItem
from moments_app.context.render import FORMATS
from moments_app.context.request import PLANS, ContextRequest
from moments_app.models import Entity, EntityLink, Job, MemoryAtom, MemoryStream, Moment, Retraction, Summary
from moments_app.provenance.retract import MOST_TURNS
from moments_app.recall.query import RETRIEVAL
from moments_app.recall.request import KINDS, MODES
from moments_app.streams.texts import current_lines
from sessions_app.api.fields import AwareDateTimeField, PublicIdField, TextField
from sessions_app.api.serializers import PAGE_MAX, SEQUENCE_MAX, PageQuery, PersonQuery

MATCH_COUNT_MAX = 100


class TagList(serializers.ListField):
    """Short strings."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=TextField(max_length=255), max_length=50, **kwargs)


class BuildInput(PersonQuery):
    """Asks for moments of a session."""

    session_id = PublicIdField()
    force = serializers.BooleanField(default=False, help_text="Build whatever the thresholds say.")
    lag = serializers.IntegerField(min_value=0, max_value=1_000_000, required=False, help_text="Turns to keep live.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "lag" in attrs and not attrs["force"]:
            raise serializers.ValidationError({"lag": "A lag can be given for a forced build only."})
        return attrs


class MomentsQuery(PageQuery):
    """Which moments."""

    category = TextField(max_length=64, required=False)
    session_id = PublicIdField(required=False)
    topic = TextField(max_length=255, required=False)
    since = AwareDateTimeField(required=False, help_text="Moments that end at this time or later.")
    until = AwareDateTimeField(required=False, help_text="Moments that start at this time or earlier.")
    text = TextField(max_length=1000, required=False, help_text="Words of name, summary or detail.")


class ChainQuery(PersonQuery):
    """How far back."""

    depth = serializers.IntegerField(min_value=1, max_value=PAGE_MAX, default=10)


class MomentPatch(PersonQuery):
    """What can be corrected in a moment."""

    name = TextField(max_length=255, required=False)
    category = TextField(max_length=64, required=False)
    summary = TextField(max_length=10_000, required=False)
    detail = TextField(max_length=50_000, allow_blank=True, required=False)
    topic_tags = TagList(required=False)
    emotion_tags = TagList(required=False)
    present_persons = TagList(required=False)


class RetractionInput(PersonQuery):
    """What is no longer to be believed."""

    session_id = PublicIdField()
    sequences = serializers.ListField(
        child=serializers.IntegerField(min_value=0, max_value=SEQUENCE_MAX),
        min_length=1,
        max_length=MOST_TURNS,
        required=False,
        allow_null=True,
        default=None,
        help_text="Of the turns; left out: all the session has.",
    )
    reason = TextField(max_length=2_000, help_text="For whoever reads about it later.")
    preview = serializers.BooleanField(default=False, help_text="Only say what would be withdrawn.")


class JobsQuery(PageQuery):
    """Which jobs."""

    session_id = PublicIdField(required=False)
    process = TextField(max_length=32, required=False)
    status = serializers.ChoiceField(choices=Job.Status.choices, required=False)


# --- answers ---


class MomentRow(serializers.ModelSerializer[Moment]):
    """A moment in a list."""

    starts_timestamp = serializers.DateTimeField(source="starts_at")
    ends_timestamp = serializers.DateTimeField(source="ends_at")

    class Meta:
        model = Moment
        fields: tuple[str, ...] = (
            "key",
            "name",
            "category",
            "summary",
            "topic_tags",
            "starts_timestamp",
            "ends_timestamp",
        )


class MomentAnswer(MomentRow):
    """A moment in full."""

    source_session_id = serializers.CharField(source="source_session.session_id", default=None, allow_null=True)

    class Meta(MomentRow.Meta):
        fields = (
            *MomentRow.Meta.fields,
            "detail",
            "emotion_tags",
            "present_persons",
            "source_session_id",
            "first_sequence",
            "last_sequence",
            "previous_moment_keys",
            "engine",
            "created_at",
        )


class MomentList(serializers.Serializer[Any]):
    moments = MomentRow(many=True)
    total = serializers.IntegerField()
    has_more = serializers.BooleanField()


class MomentChain(serializers.Serializer[Any]):
    moments = MomentRow(many=True)
    has_more = serializers.BooleanField()


class Accepted(serializers.Serializer[Any]):
    status = serializers.CharField(default="accepted")
    job_id = serializers.UUIDField()


class CoverageAnswer(serializers.Serializer[Any]):
    """How many turns are where."""

    in_moments = serializers.IntegerField()
    live = serializers.IntegerField()
    digested = serializers.IntegerField(help_text="Behind a digest; in the moments of the next build.")
    queued = serializers.IntegerField()
    held = serializers.IntegerField(help_text="In a job that waits for a back-off or an engine.")
    failed = serializers.IntegerField()
    left_out = serializers.IntegerField(help_text="Of a moment that was deleted.")
    archived = serializers.IntegerField()
    retracted = serializers.IntegerField()
    missing = serializers.IntegerField(help_text="Nowhere. Must be 0.")
    miscounted = serializers.IntegerField(help_text="Sessions whose counters disagree with their rows. Must be 0.")
    oldest_waiting = serializers.DateTimeField(allow_null=True)
    jobs_with_nothing = serializers.IntegerField()


class JobsAsked(serializers.Serializer[Any]):
    job_ids = serializers.ListField(child=serializers.UUIDField())


class ProgressAnswer(serializers.Serializer[Any]):
    done = serializers.IntegerField(source="progress_done")
    total = serializers.IntegerField(source="progress_total")


class JobAnswer(serializers.ModelSerializer[Job]):
    """A job with its outcome so far."""

    session_id = serializers.CharField(source="session.session_id", default=None, allow_null=True)
    user_id = serializers.CharField(source="user.user_id", default=None, allow_null=True)
    progress = ProgressAnswer(source="*")

    class Meta:
        model = Job
        fields = (
            "job_id",
            "process",
            "status",
            "session_id",
            "user_id",
            "attempts",
            "progress",
            "result",
            "error",
            "queued_at",
            "started_at",
            "finished_at",
        )


class JobList(serializers.Serializer[Any]):
    jobs = JobAnswer(many=True)
    total = serializers.IntegerField()
    has_more = serializers.BooleanField()


class RetractionAnswer(serializers.ModelSerializer[Retraction]):
    """What was retracted, and how much was withdrawn with it."""

    user_id = serializers.CharField(source="user.user_id")
    session_id = serializers.CharField(source="session.session_id", default=None, allow_null=True)
    turns = serializers.IntegerField(source="result.turns")
    withdrawn = serializers.DictField(source="result.withdrawn", child=serializers.IntegerField())

    class Meta:
        model = Retraction
        fields = (
            "retraction_id",
            "user_id",
            "session_id",
            "sequences",
            "reason",
            "requested_by",
            "turns",
            "withdrawn",
            "created_at",
            "undone_at",
        )


class RetractionList(serializers.Serializer[Any]):
    retractions = RetractionAnswer(many=True)
    total = serializers.IntegerField()
    has_more = serializers.BooleanField()


class RetractionPreview(serializers.Serializer[Any]):
    """What a retraction would withdraw, and about what it costs to make the rest anew."""

    turns = serializers.IntegerField()
    moment_keys = serializers.ListField(child=serializers.CharField())
    withdrawn = serializers.DictField(child=serializers.IntegerField(), help_text="Rows by kind.")
    engine_calls = serializers.IntegerField()


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
        source="base.end_sequence", default=None, help_text="Of the version it carries on; null for the first."
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


class SummaryList(serializers.Serializer[Any]):
    """A page of versions."""

    summaries = SummaryRow(many=True)
    total = serializers.IntegerField()
    has_more = serializers.BooleanField()


# --- entities ---


class EntitiesQuery(PageQuery):
    """Which entities."""

    kind = serializers.ChoiceField(choices=Entity.Kind.choices, required=False)
    status = serializers.ChoiceField(choices=Entity.Status.choices, required=False)
    text = TextField(max_length=1000, required=False, help_text="Words of title or body.")


class EntityPatch(PersonQuery):
    """What can be changed of an entity."""

    kind = serializers.ChoiceField(choices=Entity.Kind.choices, required=False)
    title = TextField(max_length=255, required=False)
    body = TextField(max_length=10_000, allow_blank=True, required=False)
    status = serializers.ChoiceField(choices=Entity.Status.choices, required=False)
    due_at = AwareDateTimeField(required=False, allow_null=True)


class EntityInput(EntityPatch):
    """A new entity."""

    kind = serializers.ChoiceField(choices=Entity.Kind.choices)
    title = TextField(max_length=255)
    session_id = PublicIdField(required=False, help_text="The session it came up in.")


class EntityAnswer(serializers.ModelSerializer[Entity]):
    """A task, goal or problem."""

    session_id = serializers.CharField(source="source_session.session_id", default=None)

    class Meta:
        model = Entity
        fields = (
            "entity_id",
            "uri",
            "kind",
            "title",
            "body",
            "status",
            "due_at",
            "session_id",
            "created_at",
            "updated_at",
        )


class EntityList(serializers.Serializer[Any]):
    """A page of entities."""

    entities = EntityAnswer(many=True)
    total = serializers.IntegerField()
    has_more = serializers.BooleanField()


class LinkQuery(PersonQuery):
    """Names a link of an entity."""

    to = serializers.UUIDField(help_text="The other entity.")
    relation = serializers.ChoiceField(choices=EntityLink.Relation.choices, default=EntityLink.Relation.RELATES_TO)


class LinkAnswer(serializers.Serializer[EntityLink]):
    """A link, read from left to right."""

    from_entity_id = serializers.UUIDField(source="from_entity.entity_id")
    relation = serializers.CharField()
    to_entity_id = serializers.UUIDField(source="to_entity.entity_id")


class LinkList(serializers.Serializer[Any]):
    """A page of an entity's links, in both directions."""

    links = LinkAnswer(many=True)
    total = serializers.IntegerField()
    has_more = serializers.BooleanField()


# --- streams ---

STREAM_FIELDS = (
    "is_active",
    "extraction_prompt",
    "extracts_observations",
    "extracts_facts",
    "observation_min",
    "observation_max",
    "observation_max_words",
    "fact_min",
    "fact_max",
    "fact_max_words",
    "consolidation_prompt",
    "consolidation_trigger",
    "consolidated_max_words",
    "fact_buffer_max",
    "consolidation_model",
    "pinned_content",
    "consolidated_content",
)


class StreamsQuery(PageQuery):
    """Which streams."""

    stream_type = serializers.ChoiceField(choices=MemoryStream.Type.choices, required=False)
    agent_id = PublicIdField(required=False)
    session_id = PublicIdField(required=False)


class Count(serializers.IntegerField):
    """A number of items or words."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(min_value=0, max_value=10_000, required=False, **kwargs)


class StreamPatch(PersonQuery):
    """What can be changed of a stream."""

    is_active = serializers.BooleanField(required=False)
    extraction_prompt = TextField(max_length=10_000, required=False)
    extracts_observations = serializers.BooleanField(required=False)
    extracts_facts = serializers.BooleanField(required=False)
    observation_min = Count()
    observation_max = Count()
    observation_max_words = Count()
    fact_min = Count()
    fact_max = Count()
    fact_max_words = Count()
    consolidation_prompt = TextField(max_length=10_000, allow_blank=True, required=False)
    consolidation_trigger = Count()
    consolidated_max_words = Count()
    fact_buffer_max = Count()
    consolidation_model = TextField(max_length=255, allow_blank=True, required=False)
    pinned_content = TextField(max_length=50_000, allow_blank=True, required=False)
    consolidated_content = TextField(max_length=50_000, allow_blank=True, required=False)


class ShardInput(StreamPatch):
    """A new shard."""

    name = TextField(max_length=64)
    agent_id = PublicIdField(required=False, help_text="Left out: every agent's.")
    extraction_prompt = TextField(max_length=10_000)


class StreamAnswer(serializers.ModelSerializer[MemoryStream]):
    """A memory stream."""

    session_id = serializers.CharField(source="session.session_id", default=None)
    user_id = serializers.CharField(source="user.user_id", default=None)

    class Meta:
        model = MemoryStream
        fields = (
            "stream_id",
            "uri",
            "stream_type",
            "agent_id",
            "user_id",
            "session_id",
            "name",
            *STREAM_FIELDS,
            "last_updated_at",
        )


class StreamLine(serializers.Serializer[Any]):
    """A line of a stream's text, and what it rests on."""

    text = serializers.CharField()
    is_by_hand = serializers.BooleanField(help_text="Consolidations keep it word for word.")
    observations = serializers.ListField(child=serializers.CharField(), help_text="Addresses of those it carries.")


class StreamDetail(StreamAnswer):
    """A memory stream, with the lines of its consolidated text."""

    lines = serializers.SerializerMethodField()

    class Meta:
        model = MemoryStream
        fields = (*StreamAnswer.Meta.fields, "lines")

    @extend_schema_field(StreamLine(many=True))
    def get_lines(self, stream: MemoryStream) -> list[dict[str, Any]]:
        lines = current_lines(stream)
        atoms = stream.atoms.filter(pk__in=[pk for line in lines for pk in line.carries])
        uris = {atom.pk: atom.uri for atom in atoms.only("atom_id")}
        return [
            {
                "text": line.text,
                "is_by_hand": line.is_by_hand,
                "observations": [uris[pk] for pk in line.carries if pk in uris],
            }
            for line in lines
        ]


class StreamList(serializers.Serializer[Any]):
    """A page of streams."""

    streams = StreamAnswer(many=True)
    total = serializers.IntegerField()
    has_more = serializers.BooleanField()


class AtomsQuery(PageQuery):
    """Which atoms of a stream."""

    atom_type = serializers.ChoiceField(choices=MemoryAtom.Type.choices, required=False)
    state = serializers.ChoiceField(choices=MemoryAtom.State.choices, default=MemoryAtom.State.ACTIVE)


class AtomInput(PersonQuery):
    """An atom written directly."""

    atom_type = serializers.ChoiceField(choices=MemoryAtom.Type.choices)
    content = TextField(max_length=4_000)
    formed_at = AwareDateTimeField(required=False)
    is_pinned = serializers.BooleanField(default=False, help_text="Neither consolidated nor evicted.")


class AtomAnswer(serializers.ModelSerializer[MemoryAtom]):
    """One extracted item."""

    session_id = serializers.CharField(source="source_session.session_id", default=None)
    rag_indexed = serializers.BooleanField(default=False, help_text="Found by meaning as well as by words.")

    class Meta:
        model = MemoryAtom
        fields = (
            "atom_id",
            "uri",
            "atom_type",
            "content",
            "state",
            "formed_at",
            "is_pinned",
            "rag_indexed",
            "access_count",
            "last_accessed_at",
            "session_id",
            "engine",
            "created_at",
        )


class AtomList(serializers.Serializer[Any]):
    """A page of atoms."""

    atoms = AtomAnswer(many=True)
    total = serializers.IntegerField()
    has_more = serializers.BooleanField()


# --- search ---

QUERY_MAX_CHARS = 20_000


class SearchInput(PersonQuery):
    """What is looked for."""

    agent_id = PublicIdField(required=False, help_text="Whose shards are searched too; left out: every agent's.")
    query = TextField(max_length=QUERY_MAX_CHARS)
    kinds = serializers.ListField(
        child=serializers.ChoiceField(choices=KINDS), default=list(KINDS), allow_empty=False, help_text="Left out: all."
    )
    match_count = serializers.IntegerField(
        min_value=1, max_value=MATCH_COUNT_MAX, required=False, help_text="Left out: RECALL__MATCH_COUNT."
    )
    mode = serializers.ChoiceField(
        choices=MODES, default="hybrid", help_text="By words (`text`), by meaning (`semantic`), or by both."
    )
    since = AwareDateTimeField(required=False, help_text="What was said at this time or later.")

    def validate_query(self, query: str) -> str:
        if not query.strip():
            raise serializers.ValidationError("A query has at least one word.", code="blank")
        return query


class SearchRanks(serializers.Serializer[Any]):
    """The place in each search, from 1; null where that search didn't find it."""

    semantic = serializers.IntegerField(default=None, allow_null=True)
    text = serializers.IntegerField(default=None, allow_null=True)


class SearchResult(serializers.Serializer[Any]):
    """One thing that was found."""

    kind = serializers.ChoiceField(choices=KINDS)
    ref = serializers.CharField()
    content = serializers.CharField(help_text="Its text, or the beginning of a long one.")
    session_id = serializers.CharField(allow_null=True)
    sequence = serializers.IntegerField(allow_null=True, help_text="Of a turn; of a moment the first it covers.")
    role = serializers.CharField(help_text="Whose turn it is; blank for what is no turn.")
    time = serializers.DateTimeField()
    score = serializers.FloatField()
    ranks = SearchRanks()


class SearchAnswer(serializers.Serializer[Any]):
    """What was found, best first."""

    results = SearchResult(many=True)
    mode = serializers.ChoiceField(choices=MODES, help_text="What was searched by.")
    degraded = serializers.BooleanField(help_text="By words alone, though meaning was asked for.")


# --- context ---


class ContextInput(PersonQuery):
    """What the context is for, and how large it may be."""

    session_id = PublicIdField(required=False)
    chat_id = PublicIdField(required=False, help_text="Another name for `session_id`.")
    query = TextField(max_length=QUERY_MAX_CHARS, allow_blank=True, default="", help_text="The current message.")
    max_tokens = serializers.IntegerField(
        min_value=1, max_value=1_000_000_000, required=False, help_text="At most MEMORY_CONTEXT__MAX_TOKENS holds."
    )
    format = serializers.ChoiceField(choices=sorted(FORMATS), default="xml")
    layers = serializers.ListField(
        child=serializers.ChoiceField(choices=ORDER),
        default=list(DEFAULT),
        help_text="Wanted ones; in a query by comma.",
    )
    refresh = serializers.BooleanField(default=False, help_text="Make the kept parts anew.")
    retrieval = serializers.ChoiceField(
        choices=RETRIEVAL,
        default="query",
        help_text="`query`: memory is searched for the query; `auto`: for what an engine makes of it; `off`: it isn't.",
    )
    plan = serializers.ChoiceField(
        choices=PLANS,
        default="query",
        help_text="`query`: what answers the query has at least half of the budget; `stable`: nothing is searched, and "
        "the text stays the same until memory changes, for providers' prompt caches.",
    )

    def to_internal_value(self, data: Any) -> Any:
        """In a query string layers are one value, by comma."""
        if isinstance(data, Mapping) and isinstance(data.get("layers"), str):
            data = {**data, "layers": [name for name in data["layers"].split(",") if name]}
        return super().to_internal_value(data)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        named = {attrs.pop(name) for name in ("session_id", "chat_id") if name in attrs}
        if len(named) != 1:
            told = "Say session_id or chat_id, not two." if named else "This field is required."
            raise serializers.ValidationError({"session_id": told}, code="invalid" if named else "required")
        return attrs | {"session_id": named.pop()}


def wanted(asked: dict[str, Any]) -> ContextRequest:
    """What a valid request asks for."""
    return ContextRequest(
        query=asked["query"],
        max_tokens=asked.get("max_tokens"),
        format=asked["format"],
        layers=asked["layers"],
        refresh=asked["refresh"],
        plan=asked["plan"],
    )


class ContextItem(serializers.Serializer[Any]):
    """A line of memory and where it comes from."""

    text = serializers.CharField()
    tokens = serializers.IntegerField()
    ref = serializers.CharField()
    sequence_range = serializers.ListField(child=serializers.IntegerField(), allow_null=True)
    time = serializers.DateTimeField(allow_null=True)
    role = serializers.CharField(required=False, help_text="Of a turn.")


class ContextLayer(serializers.Serializer[Any]):
    """One layer."""

    name = serializers.CharField()
    tokens = serializers.IntegerField()
    items = ContextItem(many=True)


class ContextBudget(serializers.Serializer[Any]):
    """Tokens."""

    requested = serializers.IntegerField(allow_null=True)
    applied = serializers.IntegerField()
    estimated_used = serializers.IntegerField()


class ContextTrimmed(serializers.Serializer[Any]):
    """What the budget had no room for."""

    layer = serializers.CharField()
    count = serializers.IntegerField()
    tokens = serializers.IntegerField()
    reason = serializers.CharField()


class ContextAnswer(serializers.Serializer[Any]):
    """A context with its accounts."""

    context_id = serializers.UUIDField()
    budget = ContextBudget()
    sources = serializers.DictField(child=serializers.IntegerField(), help_text="Items that made it in, by layer.")
    trimmed = ContextTrimmed(many=True)
    layers = ContextLayer(many=True)
    has_partition_event = serializers.BooleanField()
    cached = serializers.BooleanField()
    degraded = serializers.BooleanField()
    context = serializers.JSONField(  # type: ignore[assignment]  # a field of that name hides one of the base's
        help_text="Text; for `messages` a list of messages; blank for `json`."
    )


def context_data(envelope: Envelope) -> dict[str, Any]:
    """A context as answered."""
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
