"""Types of the platform's responses, as in the OpenAPI schema. The platform may add fields."""

from typing import Any, Literal, NotRequired, TypedDict

Role = Literal["user", "assistant", "tool", "system"]
Kind = Literal["fact", "moment", "turn"]
Mode = Literal["hybrid", "semantic", "text"]
Format = Literal["json", "markdown", "messages", "xml"]
Plan = Literal["query", "stable"]
Retrieval = Literal["query", "relevant", "auto", "off"]


class PlacedMessage(TypedDict):
    """A message in the transcript, and whether it is new."""

    sequence: int
    external_id: str | None
    created_at: str
    tokens: int
    created: bool


class DueJob(TypedDict):
    """A job that became due."""

    job_id: str
    process: str
    status: str


class Appended(TypedDict):
    """The result of adding messages."""

    session_id: str
    user_id: str
    message_count: int
    total_tokens: int
    messages: list[PlacedMessage]
    jobs: list[DueJob]


class Message(TypedDict):
    """A turn, or a partition event."""

    sequence: int
    kind: Literal["turn", "partition"]
    role: Role
    content: str
    tool_name: str
    name: str
    payload: Any
    tokens: int
    created_at: str
    external_id: str | None
    moment_key: str | None
    retracted_at: str | None
    metadata: Any


class Omitted(TypedDict):
    """The live turns before the returned ones."""

    count: int
    from_sequence: int
    to_sequence: int


class LiveMessages(TypedDict):
    """The messages of a session to replay to a model."""

    messages: list[Message]
    has_partition_event: bool
    omitted: Omitted | None
    live_from_sequence: int
    message_count: int


class MessagePage(TypedDict):
    """A page of a transcript."""

    messages: list[Message]
    has_more: bool


class ContextBudget(TypedDict):
    """The requested, allowed and used tokens."""

    requested: int | None
    applied: int
    estimated_used: int


class ContextTrimmed(TypedDict):
    """What was left out because of the budget."""

    layer: str
    count: int
    tokens: int
    reason: str


class ContextItem(TypedDict):
    """A line of a context, with its source."""

    text: str
    tokens: int
    ref: str
    sequence_range: list[int] | None
    time: str | None
    role: NotRequired[str]


class ContextLayer(TypedDict):
    """A layer of a context."""

    name: str
    tokens: int
    items: list[ContextItem]


class Context(TypedDict):
    """A context with details about its content. `context` is text, or messages if the request asks for them."""

    context_id: str
    budget: ContextBudget
    sources: dict[str, int]
    trimmed: list[ContextTrimmed]
    layers: list[ContextLayer]
    has_partition_event: bool
    cached: bool
    degraded: bool
    context: Any


class Ranks(TypedDict):
    """The ranks of a result by meaning and by words."""

    semantic: NotRequired[int | None]
    text: NotRequired[int | None]


class Result(TypedDict):
    """A search result."""

    kind: Kind
    ref: str
    content: str
    session_id: str | None
    sequence: int | None
    role: str
    time: str
    valid_from: str | None
    valid_until: str | None
    score: float
    ranks: Ranks


class Span(TypedDict):
    """A time range. `until` is exclusive."""

    since: str | None
    until: str | None


class Found(TypedDict):
    """Search results, best first. `span` is the time range in the request or the query."""

    results: list[Result]
    span: Span | None
    mode: Mode
    degraded: bool


class MomentRow(TypedDict):
    """A moment in a list."""

    key: str
    name: str
    category: NotRequired[str]
    summary: str
    topic_tags: NotRequired[list[str]]
    starts_timestamp: str
    ends_timestamp: str


class Moment(MomentRow):
    """A moment in full."""

    detail: NotRequired[str]
    emotion_tags: NotRequired[list[str]]
    present_persons: NotRequired[list[str]]
    source_session_id: NotRequired[str | None]
    first_sequence: int
    last_sequence: int
    previous_moment_keys: NotRequired[list[str]]
    engine: str
    created_at: str


class Moments(TypedDict):
    """A page of moments, latest first."""

    moments: list[MomentRow]
    total: int
    has_more: bool


class Fact(TypedDict):
    """A fact about a person, and when it was true."""

    fact_id: str
    uri: str
    atom_type: Literal["observation", "fact"]
    content: str
    about: NotRequired[str | None]
    subject: str
    attribute: str
    value: str
    said_at: str
    valid_from: NotRequired[str | None]
    valid_until: NotRequired[str | None]
    state: NotRequired[Literal["active", "absorbed", "ended", "evicted", "line"]]
    is_wrong: bool
    replaced_by: NotRequired[str | None]
    ended_at: str | None
    session_id: NotRequired[str | None]
    created_at: str


class Facts(TypedDict):
    """A page of facts, newest first."""

    facts: list[Fact]
    has_more: bool


class Correction(TypedDict):
    """The result of correcting or withdrawing a fact."""

    correction_id: str | None
    fact_id: NotRequired[str | None]
    before: str
    after: NotRequired[str]


class KnownPersonRow(TypedDict):
    """Another person in the user's memory."""

    key: str
    name: str
    aliases: NotRequired[list[str]]
    relationship: NotRequired[str]
    created_at: str


class KnownPerson(KnownPersonRow):
    """Another person, with a profile derived from current facts."""

    summary: str
    interests: list[str]
    preferred_topics: list[str]


class People(TypedDict):
    """A page of people, newest first."""

    people: list[KnownPersonRow]
    total: int
    has_more: bool


class Profile(TypedDict):
    """A person's profile."""

    user_id: str
    uri: str
    summary: NotRequired[str]
    interests: NotRequired[list[str]]
    preferred_topics: NotRequired[list[str]]
    timezone: NotRequired[str]
    metadata: NotRequired[Any]
    created_at: str
    updated_at: str


class Session(TypedDict):
    """A session with its counters."""

    session_id: str
    user_id: str
    agent_id: NotRequired[str]
    source: NotRequired[str]
    title: NotRequired[str]
    message_count: NotRequired[int]
    total_tokens: NotRequired[int]
    last_activity: str
    live_from_sequence: NotRequired[int]
    metadata: NotRequired[Any]
    created_at: str


class Sessions(TypedDict):
    """A page of sessions, latest activity first."""

    sessions: list[Session]
    total: int
    has_more: bool


class Accepted(TypedDict):
    """A queued job."""

    status: NotRequired[str]
    job_id: str


class Job(TypedDict):
    """A job with its result so far."""

    job_id: str
    process: str
    status: NotRequired[Literal["queued", "processing", "completed", "failed", "skipped"]]
    session_id: NotRequired[str | None]
    user_id: NotRequired[str | None]
    attempts: NotRequired[int]
    result: NotRequired[Any]
    error: NotRequired[str]
    queued_at: NotRequired[str]
    started_at: NotRequired[str | None]
    finished_at: NotRequired[str | None]


class Erased(TypedDict):
    """The result of an erasure."""

    erasure_id: str
    rows: dict[str, int]
    left: dict[str, int]
    kept: dict[str, int]
    has_files_left: bool
