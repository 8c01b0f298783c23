"""The interface of engines, which write memory text.

Processes exchange plain data with an engine, and the results are validated. Engines don't use the database, sessions or
jobs, so they can be called without an open transaction. There are two engines: `extractive/` (no model) and `model.py`
(a language model at an OpenAI-compatible endpoint).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from moments_app.engines.calls.formation import FormationAnswer, FormationRequest
from moments_app.engines.calls.moments import MomentAnswer, MomentRequest
from moments_app.engines.calls.texts import (
    ConsolidationAnswer,
    ConsolidationRequest,
    DigestAnswer,
    DigestRequest,
    QueryAnswer,
    QueryRequest,
    SummaryAnswer,
    SummaryRequest,
)
from moments_app.engines.grounding import LeftOut
from moments_app.engines.shared_call import Part

EMBEDDING, RERANK = "embedding", "rerank"  # purposes of calls to embedders and rerankers


class Cause(StrEnum):
    """The causes of failed calls. Each has one consequence."""

    TEXT = "text"  # the job fails after its last attempt; other jobs are not affected
    ANSWER = "answer"  # as for `TEXT`, and the failure counts against the prompt version
    CREDENTIAL = "credential"  # the circuit opens immediately and holds all jobs
    LOAD = "load"  # the circuit opens after a second failure, for as long as `Retry-After` says
    NETWORK = "network"  # the circuit opens after a second failure, and then probes the endpoint


CAUSES = {
    "rejected": Cause.TEXT,
    "invalid_answer": Cause.ANSWER,
    "too_large": Cause.ANSWER,
    "credential": Cause.CREDENTIAL,
    "quota": Cause.CREDENTIAL,
    "address": Cause.CREDENTIAL,
    "rate_limited": Cause.LOAD,
    "timeout": Cause.NETWORK,
    "unavailable": Cause.NETWORK,
    "server_error": Cause.NETWORK,
}


@dataclass(frozen=True)
class Exchange:
    """The texts of a call: the request to the model, and its answer if it could be read."""

    asked: str
    answered: str


@dataclass(frozen=True)
class CallRecord:
    """The cost and the result of one model call, with its text only if it failed.

    Args:
        purpose: The process's purpose, e.g. `moment-builder`.
        engine: The name of the engine, e.g. `openai:gpt-4.1-mini`.
        input_tokens, output_tokens: As reported by the endpoint, or None.
        latency_ms: Wall time in milliseconds.
        error_kind: A key of `CAUSES`. Blank if the call succeeded.
        error: One sentence for an operator, without prompt, completion or key.
        retry_after: Seconds to wait, as requested by the endpoint, or None.
        is_aborted: Whether the caller aborted the call, which says nothing about the endpoint.
        kept: Number of sentences and items of the answer that were kept.
        left_out: The dropped sentences and items, each with the reason. Not stored with the call.
        exchange: The texts of a failed call.
        is_parallel: Whether it failed in parallel with another call of the same work, and gives no new information.
        is_part: Whether it covers one part of a combined call, which has a record of its own with the tokens and time.
    """

    purpose: str
    engine: str
    latency_ms: int
    input_tokens: int | None = None
    output_tokens: int | None = None
    error_kind: str = ""
    error: str = ""
    retry_after: float | None = None
    is_aborted: bool = False
    kept: int = 0
    left_out: Sequence[LeftOut] = field(default=(), repr=False)
    exchange: Exchange | None = field(default=None, repr=False)
    is_part: bool = False
    is_parallel: bool = False

    @property
    def dropped(self) -> Counter[str]:
        return Counter(one.reason for one in self.left_out)


class EngineError(Exception):
    """The engine gave no usable answer. Nothing was changed, so the job can be retried.

    Args:
        kind: See `CallRecord.error_kind`.
        message: One sentence for an operator.
        retry_after: Seconds to wait, as requested by the endpoint, or None.
    """

    def __init__(self, kind: str, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after = retry_after


class Engine(Protocol):
    """The interface of both engines. All methods except `with_model` may raise `EngineError`.

    Attributes:
        name: the name of the engine with its model.
    """

    name: str

    def with_model(self, model: str) -> "Engine":
        """Return the same engine with another model, or itself if it uses no model."""
        ...

    def with_answers(self, parts: Sequence[Part]) -> "Engine":
        """Request several answers in one call, and return an engine that has them.

        The returned engine requests missing or invalid answers when they are needed. An engine without a model returns
        itself.
        """
        ...

    def build_moments(self, request: MomentRequest) -> MomentAnswer:
        """Divide the window into moments."""
        ...

    def roll_summary(self, request: SummaryRequest) -> SummaryAnswer:
        """Add new turns to a rolling summary, and drop content from before the window."""
        ...

    def form_memories(self, request: FormationRequest) -> FormationAnswer:
        """Return the new items for each stream."""
        ...

    def consolidate(self, request: ConsolidationRequest) -> ConsolidationAnswer:
        """Consolidate observations into a text."""
        ...

    def digest(self, request: DigestRequest) -> DigestAnswer:
        """Return the context needed to continue a session, and its lessons."""
        ...

    def recall_query(self, request: QueryRequest) -> QueryAnswer:
        """Return the query with which to search memory before a message is answered."""
        ...
