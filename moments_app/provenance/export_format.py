"""What memory adds to an export: the lines of its files. `sessions_app.people.export_format` has the transcript's."""

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AwareDatetime, Field, NonNegativeInt, PositiveInt

from sessions_app.people.export_format import Row


class MomentRow(Row):
    """A remembered episode."""

    key: str
    name: str
    category: str
    summary: str
    detail: str
    topic_tags: list[str]
    emotion_tags: list[str]
    present_persons: list[str]
    starts_at: AwareDatetime
    ends_at: AwareDatetime
    session_id: str | None
    first_sequence: int
    last_sequence: int
    previous_moment_keys: list[str]
    journey: str = ""
    engine: str
    created_at: AwareDatetime
    updated_at: AwareDatetime


class SummaryRow(Row):
    """A version of a session's rolling summary; `base` is the number of the one it was made from."""

    session_id: str
    number: PositiveInt
    base: PositiveInt | None
    status: Literal["processing", "completed", "failed"]
    start_sequence: int
    end_sequence: int
    source_sequences: list[int]
    text: str
    facts: list[Any]
    engine: str
    generation_time_ms: NonNegativeInt | None
    error: str
    created_at: AwareDatetime
    completed_at: AwareDatetime | None


class StreamRow(Row):
    """A memory stream: what it takes in, and its text."""

    stream_id: UUID
    stream_type: Literal["session", "user"]
    agent_id: str
    session_id: str | None
    is_active: bool
    extraction_prompt: str
    extracts_observations: bool
    extracts_facts: bool
    observation_min: NonNegativeInt
    observation_max: NonNegativeInt
    observation_max_words: NonNegativeInt
    fact_min: NonNegativeInt
    fact_max: NonNegativeInt
    fact_max_words: NonNegativeInt
    consolidation_prompt: str
    consolidation_trigger: NonNegativeInt
    consolidated_max_words: NonNegativeInt
    fact_buffer_max: NonNegativeInt
    consolidation_model: str
    pinned_content: str
    consolidated_content: str
    last_updated_at: AwareDatetime


class StreamVersionRow(Row):
    """A consolidation of a stream; they are numbered from 1.

    `lines` names the atoms that each line after carries; null: it was written by hand.
    """

    stream_id: UUID
    number: PositiveInt
    content_before: str
    content_after: str
    lines: list[list[UUID] | None] | None = None
    engine: str
    created_at: AwareDatetime
    undone_at: AwareDatetime | None


class AtomRow(Row):
    """A fact or an observation; `absorbed_in` and `shown_in` are numbers of versions of its stream."""

    atom_id: UUID
    stream_id: UUID
    atom_type: Literal["observation", "fact"]
    content: str
    state: Literal["active", "absorbed", "evicted"]
    absorbed_in: PositiveInt | None
    shown_in: PositiveInt | None = None
    formed_at: AwareDatetime
    created_at: AwareDatetime
    is_pinned: bool
    access_count: NonNegativeInt
    last_accessed_at: AwareDatetime | None
    session_id: str | None
    source_sequences: list[int]
    engine: str


class ShardAtomRow(Row):
    """What a shard, shared by an agent's users, has from this person."""

    shard: str
    agent_id: str
    atom_type: str
    content: str
    state: str
    formed_at: AwareDatetime


class OwnTextRow(Row):
    """What of a turn the platform itself had served: the places of its lines, from 0; null is all of it."""

    session_id: str
    sequence: NonNegativeInt
    places: list[Annotated[int, Field(ge=0, le=2**31 - 1)]] | None


class EntityRow(Row):
    """A task, a goal or a problem."""

    entity_id: UUID
    kind: Literal["task", "goal", "problem"]
    title: str
    body: str
    status: Literal["open", "done", "dropped"]
    due_at: AwareDatetime | None
    session_id: str | None
    created_at: AwareDatetime
    updated_at: AwareDatetime


class EntityLinkRow(Row):
    """How two of them hang together."""

    from_entity: UUID
    to_entity: UUID
    relation: Literal["blocks", "part_of", "relates_to", "follows"]


class ReceiptRow(Row):
    """What went into a context that was served: addresses, sizes and hashes."""

    context_id: UUID
    session_id: str
    query_hash: str
    refs: Any
    tokens: Any
    trimmed: Any
    text_hash: str
    created_at: AwareDatetime


class JobRow(Row):
    """Work that was done, or is to be."""

    job_id: UUID
    process: str
    session_id: str | None
    status: str
    attempts: NonNegativeInt
    queued_at: AwareDatetime
    finished_at: AwareDatetime | None
    result: Any
    error: str


class RetractionRow(Row):
    """Turns that are no longer believed; all of the session's where `sequences` is null."""

    retraction_id: UUID
    session_id: str | None
    sequences: list[int] | None
    reason: str
    result: Any
    created_at: AwareDatetime
    undone_at: AwareDatetime | None
