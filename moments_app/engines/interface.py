"""The interface of the two engines: `extractive/` (no model) and `model.py` (a language model).

Engines don't use the database, sessions or jobs, so they can be called without an open transaction.
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
from moments_app.engines.grounding import DroppedItem
from moments_app.engines.shared_call import Part

EMBEDDING, RERANK = "embedding", "rerank"  # purposes of calls to embedders and rerankers


class FailureCause(StrEnum):
    """The causes of failed calls. The cause determines what happens after a failure."""

    TEXT = "text"  # the job fails after its last attempt; other jobs are not affected
    ANSWER = "answer"  # as for `TEXT`, and the failure counts against the prompt version
    CREDENTIAL = "credential"  # the circuit opens immediately and holds all jobs
    LOAD = "load"  # the circuit opens after a second failure, for as long as `Retry-After` says
    NETWORK = "network"  # the circuit opens after a second failure, and then probes the endpoint


FAILURE_CAUSES = {
    "rejected": FailureCause.TEXT,
    "invalid_answer": FailureCause.ANSWER,
    "too_large": FailureCause.ANSWER,
    "credential": FailureCause.CREDENTIAL,
    "quota": FailureCause.CREDENTIAL,
    "address": FailureCause.CREDENTIAL,
    "rate_limited": FailureCause.LOAD,
    "timeout": FailureCause.NETWORK,
    "unavailable": FailureCause.NETWORK,
    "server_error": FailureCause.NETWORK,
}


@dataclass(frozen=True)
class Exchange:
    asked: str  # the request to the model
    answered: str  # blank if the answer couldn't be read


@dataclass(frozen=True)
class CallRecord:
    """The cost and the result of one model call."""

    purpose: str  # purpose of the call, e.g. `moment-builder`
    engine: str  # e.g. `openai:gpt-4.1-mini`
    latency_ms: int
    input_tokens: int | None = None  # as reported by the endpoint
    output_tokens: int | None = None
    error_kind: str = ""  # a key of `FAILURE_CAUSES`; blank if the call succeeded
    error: str = ""  # one sentence for an operator, without prompt, completion or key
    retry_after: float | None = None  # seconds to wait, as requested by the endpoint
    is_aborted: bool = False  # whether the caller aborted the call, which says nothing about the endpoint
    kept: int = 0  # number of sentences and items of the answer that were kept
    left_out: Sequence[DroppedItem] = field(default=(), repr=False)  # those that were dropped; not stored with the call
    exchange: Exchange | None = field(default=None, repr=False)  # the request and the answer of a failed call
    is_part: bool = False  # whether it is a part of a combined call; a separate record has the call's tokens and time
    # whether a parallel call of the same job failed first, so this failure is not counted
    is_repeated_failure: bool = False

    @property
    def dropped(self) -> Counter[str]:
        return Counter(one.reason for one in self.left_out)


class EngineError(Exception):
    """The engine gave no usable answer. Nothing was changed, so the job can be retried. See `CallRecord.error`."""

    def __init__(self, kind: str, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.retry_after = retry_after


class Engine(Protocol):
    """The interface of both engines. All methods except `with_model` may raise `EngineError`."""

    name: str  # name of the engine with its model

    def with_model(self, model: str) -> "Engine":
        """Return the engine with another model. An engine that uses no model returns itself."""

    def with_answers(self, parts: Sequence[Part]) -> "Engine":
        """Request several answers in one call, and return an engine that has them.

        The returned engine calls the model again for missing or invalid answers, when they are needed. An engine
        without a model returns itself.
        """

    def build_moments(self, request: MomentRequest) -> MomentAnswer: ...

    def roll_summary(self, request: SummaryRequest) -> SummaryAnswer: ...

    def form_memories(self, request: FormationRequest) -> FormationAnswer: ...

    def consolidate(self, request: ConsolidationRequest) -> ConsolidationAnswer: ...

    def digest(self, request: DigestRequest) -> DigestAnswer: ...

    def recall_query(self, request: QueryRequest) -> QueryAnswer: ...
